// Fails if the built window is larger than its limit, gzipped, or one of the parts that are loaded
// when they are opened. Run it after `npm run build`.
import { readFileSync, readdirSync } from "node:fs";
import { gzipSync } from "node:zlib";

/** In bytes. `chat` is the trial of language models. `german` grows with every text of the window and of Rust, and is only loaded if German is chosen. `settings` includes the recovery steps, `menus` what is dragged and the recent folders. */
const limits = { window: 74_500, plan: 16_200, results: 22_400, comparison: 3_500, data: 10_700, settings: 12_200, model: 5_500, charts: 4_200, menus: 4_000, dialogs: 8_300, camera: 2_000, chat: 7_000, german: 58_000 };
/** The part of a file, by the start of its name. Both pages share the thumbnails. */
const pages = { CameraCapture: "camera", LanguageModel: "chat", plan: "plan", Comparison: "comparison", german: "german", Results: "results", TryIt: "results", "page.svelte": "results", splitAndSampleText: "plan", SampleThumbnail: "results", Data: "data", FirstSamples: "data", Locate: "data", Refused: "data", AllSettings: "settings", BaseModelSheet: "model", baseModel: "model", LeaveToOthers: "plan", settings: "settings", recoveryStepsPanels: "settings", recoverySteps: "settings", Palette: "dialogs", EditRun: "dialogs", dialogs: "dialogs", TrainLonger: "dialogs", Changes: "dialogs", MemoryLimits: "dialogs", ChartChoices: "charts", Cursor: "charts", valuesAtCursor: "charts", chartMenu: "menus", partMenus: "menus", dragRun: "menus", importRun: "menus", stressReaction: "charts", Recent: "menus", limits: "dialogs", Queue: "dialogs", queue: "dialogs" };
const folder = new URL("./dist/", import.meta.url);
const totals = Object.fromEntries(Object.keys(limits).map((part) => [part, 0]));
for (const name of readdirSync(folder, { recursive: true }).sort()) {
  if (!/\.(js|css|html)$/.test(name)) continue;
  const bytes = gzipSync(readFileSync(new URL(name, folder)), { level: 9 }).length;
  totals[pages[/([^/]*?)-[^/]*$/.exec(name)?.[1]] ?? "window"] += bytes;
  console.log(`${(bytes / 1000).toFixed(1).padStart(6)} kB  ${name}`);
}
if (Object.values(totals).includes(0)) {
  console.error("ui/dist is empty; run npm run build first");
  process.exit(1);
}
for (const [part, total] of Object.entries(totals)) {
  console.log(`${(total / 1000).toFixed(1).padStart(6)} kB  ${part}, gzipped; the limit is ${limits[part] / 1000} kB`);
  if (total <= limits[part]) continue;
  console.error(`${part}: ${((total - limits[part]) / 1000).toFixed(1)} kB over the limit`);
  process.exitCode = 1;
}
