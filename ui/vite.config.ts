// The window's build. Development and preview servers also serve a recorded run, which is never
// part of the bundle.
import { createReadStream } from "node:fs";
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Connect, type Plugin } from "vite";
import { trimUPlot } from "./uplot.trim.ts";

/** Recorded runs by their address. */
const recorded: Record<string, string> = { "/recorded.json": "pulls", "/recorded-long.json": "long" };

const serveRecorded: Connect.NextHandleFunction = (request, response, next) => {
  if (request.url === "/favicon.ico") return response.writeHead(204).end(); // or a browser logs an error
  const name = recorded[request.url?.split("?")[0] ?? ""];
  if (!name) return next();
  response.setHeader("content-type", "application/json");
  createReadStream(fileURLToPath(new URL(`./recorded/${name}.json`, import.meta.url))).pipe(response);
};

const replay: Plugin = {
  name: "ebb-replay",
  configureServer: (server) => {
    server.middlewares.use(serveRecorded);
    server.httpServer?.once("listening", () => server.config.logger.info(`  Every state of the window: http://localhost:${server.config.server.port}/states.html`));
  },
  configurePreviewServer: (server) => void server.middlewares.use(serveRecorded),
};

// The app's own policy, so that a preview is refused the same things as the window.
const policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'";

/** Code that the plan, results and data pages and the sheet of settings share with the window stays in the first chunk, which is smaller than
 * two. Not with the replay host: the first chunk would wait for a chunk that waits for it. */
const oneChunk = { output: { codeSplitting: { groups: [{ name: "index", test: (id: string) => !/src\/(shell\/SampleThumbnail|results\/|data\/|host\/(results|chat|data|settings|locate)|generated\/settings|plan\/(?!settingTitle)|actions\/(Palette|EditRun|TrainLonger|dialogs|partMenus)|training\/(Changes|changeRows|stressReaction|MemoryLimits|ChartChoices|Cursor|valuesAtCursor|chartMenu|chartPicture)|welcome\/(Recent|dragRun|importRun)|host\/(limits|recovery|charts|runFolderPath)|strings\/(german|sentences|de\.json))/.test(id) }, { name: "plan", test: /src\/plan\/(Plan|Estimate|Contents|Settings|Field)\.svelte|src\/plan\/(settings|leaveToOthers|doesNotFit|memoryBar|fitBelowBudget|splitName)\.ts/ }] } } };

export default defineConfig(({ mode }) => ({
  base: "./",
  clearScreen: false,
  plugins: [svelte({ configFile: false, compilerOptions: { runes: true, discloseVersion: false, fragments: "tree", cssHash: ({ name }) => `e-${name}` } }), trimUPlot, replay],
  server: { port: 5173, strictPort: true },
  preview: { port: 5174, strictPort: true, headers: { "content-security-policy": policy } },
  build: {
    target: "safari18",
    cssTarget: "safari18",
    outDir: process.env.EBB_UI_OUT ?? "dist",
    emptyOutDir: true,
    modulePreload: false,
    rolldownOptions: mode === "production" ? oneChunk : {},
    assetsInlineLimit: 0,
  },
}));
