// Fails if the built window is larger than 72 kB gzipped. Run it after `npm run build`.
import { readFileSync, readdirSync } from "node:fs";
import { gzipSync } from "node:zlib";

const limit = 72_000;
const folder = new URL("./dist/", import.meta.url);
let total = 0;
for (const name of readdirSync(folder, { recursive: true }).sort()) {
  if (!/\.(js|css|html)$/.test(name)) continue;
  const bytes = gzipSync(readFileSync(new URL(name, folder)), { level: 9 }).length;
  total += bytes;
  console.log(`${(bytes / 1000).toFixed(1).padStart(6)} kB  ${name}`);
}
console.log(`${(total / 1000).toFixed(1).padStart(6)} kB  gzipped in total; the limit is ${limit / 1000} kB`);
if (total === 0) {
  console.error("ui/dist is empty; run npm run build first");
  process.exit(1);
}
if (total > limit) {
  console.error(`the window is ${((total - limit) / 1000).toFixed(1)} kB over its limit`);
  process.exit(1);
}
