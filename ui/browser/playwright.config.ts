// The browser tests: the window against its replay host, in the system's Chromium. Nothing is
// downloaded: on a Mac this is Chrome, on Linux the package `chromium`.
import { existsSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { defineConfig } from "@playwright/test";

const linux = process.platform === "linux";
const places = [process.env.EBB_CHROMIUM ?? "", "/usr/bin/chromium", "/usr/bin/google-chrome-stable"];
const chromium = places.find((place) => place && existsSync(place)) ?? "/usr/bin/chromium";

/** The workers inherit it. */
process.env.EBB_REPLAY_PORT ??= String(await new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address() as AddressInfo;
    server.close(() => resolve(port));
  });
}));
const port = process.env.EBB_REPLAY_PORT;
const root = new URL("../..", import.meta.url).pathname;
const vite = "node node_modules/vite/bin/vite.js";

// The same pixels on every machine: no hinting, no subpixels, no instructions that only some
// processors have.
const pixels = ["--font-render-hinting=none", "--disable-lcd-text", "--disable-font-subpixel-positioning", "--force-color-profile=srgb", "--disable-skia-runtime-opts", "--disable-gpu"];

export default defineConfig({
  testDir: ".",
  testMatch: ["states.ts", "keyboard.ts", "pointer.ts"],
  outputDir: `${root}target/browser`,
  snapshotPathTemplate: "{testDir}/../pictures/{arg}{ext}",
  // A picture is only missing if a state was added; then `npm run pictures` takes it.
  updateSnapshots: "none",
  fullyParallel: true,
  workers: 2,
  timeout: 60_000,
  reporter: [["list"]],
  expect: {
    timeout: 15_000,
    // The committed pictures have 256 colors: at this threshold the lost shades change at most 25
    // pixels, at 0.03 up to 63.
    toHaveScreenshot: { animations: "disabled", caret: "hide", threshold: 0.04, maxDiffPixels: 60 },
  },
  metadata: { linux },
  use: {
    baseURL: `http://127.0.0.1:${port}`,
    viewport: { width: 1180, height: 760 },
    locale: "en-US",
    timezoneId: "UTC",
    contextOptions: { reducedMotion: "reduce" },
    ...(linux ? {} : { channel: "chrome" }),
    launchOptions: { args: pixels, ...(linux ? { executablePath: chromium } : {}) },
  },
  webServer: {
    command: `${vite} build ui --mode replay --logLevel warn && ${vite} preview ui --mode replay --host 127.0.0.1 --port ${port} --strictPort`,
    cwd: root,
    env: { EBB_UI_OUT: `${root}target/browser-page` },
    url: `http://127.0.0.1:${port}`,
    timeout: 180_000,
  },
});
