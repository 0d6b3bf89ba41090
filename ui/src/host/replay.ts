// The window in a plain browser: a recorded run is played again. `?at=SECONDS` says where on its clock to begin,
// `?speed=0` holds it there, `?theme=light|dark` overrides the system. Never part of a production bundle.
import type { RunEvent, RunRequest, RunStatus, StatusLine } from "../types";
import { refusal, type Host } from "./host";
import { pullAt } from "./replay/fold";
import { forecast, inspection, machine, published, refused, rows, weights, welcome } from "./replay/views";

const query = new URLSearchParams(location.search);
const number = (name: string, otherwise: number) => Number(query.get(name) ?? otherwise);
const theme = query.get("theme");
if (theme) document.documentElement.dataset.theme = theme;

const events = (await (await fetch("/recorded.jsonl")).text()).trim().split("\n").map((line) => JSON.parse(line) as RunEvent);
const endMs = events.at(-1)!.at_ms;
let baseMs = number("at", 0) * 1000;
let begun = performance.now();
let speed = number("speed", 1);
let status: RunStatus = "training";
let last: StatusLine | undefined;
let drillEnds = 0;

const nowMs = () => Math.min(endMs, Math.round(baseMs + (performance.now() - begun) * speed));

const turn = (next: RunStatus, nextSpeed: number, message?: string) => {
  baseMs = nowMs();
  [begun, speed, status] = [performance.now(), nextSpeed, next];
  last = message ? { at_ms: baseMs, message, detail: "Nothing is lost. Resume continues from here.", level: "normal" } : undefined;
};

const asked: Record<Exclude<RunRequest, object>, () => void> = {
  stop: () => turn("stopped", 0, "Stopped. Checkpoint saved in 0.8 s"),
  pause: () => turn("paused", 0, "Paused by you"),
  continue: () => turn("training", number("speed", 1)),
  checkpoint: () => {},
};

export const host: Host = {
  welcome: async () => ({ ...welcome, platform: query.get("platform") ?? welcome.platform }),
  machine: async () => machine,
  runs: async () => (query.has("empty") ? [] : rows.map((row) => (row.id === "demo" ? { ...row, status, can_resume: true } : row))),
  chooseFolder: async () => ({ kind: "inspection", id: "demo", weights: null }),
  chooseWeights: async () => weights,
  openSample: async () => "demo",
  inspection: async (id, seen) => {
    if (seen === 1) return null;
    if (id === "reading") return { ...inspection, id, reading: true, plans: [], skipped: [], notes: [], samples: 600, files_seen: 602 };
    return id === "refused" ? refused : inspection;
  },
  beginWith: async (_inspection, _weights, trains) => published(trains ?? "all"),
  forecast: async () => forecast,
  train: async () => {
    if (query.has("refuse")) throw { code: "busy", message: "One run is training already. Stop it first, then train this folder." };
    baseMs = 0;
    turn("training", number("speed", 1));
    return "demo";
  },
  resume: async () => turn("training", number("speed", 1)),
  control: async (_, request) => {
    if (typeof request === "string") asked[request]();
  },
  drill: async (request) => {
    if (request === "begin") drillEnds = performance.now() + 20_000;
    if (request === "end") drillEnds = 0;
    const seconds_left = Math.max(0, drillEnds - performance.now()) / 1000;
    return { bytes: seconds_left > 0 ? 4 * 2 ** 30 : 0, seconds_left };
  },
  pull: async ({ fromMs, toMs, columns, seen }) => pullAt(events, { nowMs: nowMs(), status, last }, fromMs, toMs, columns, seen),
  reportError: async (message) => console.error(refusal(message).message),
  onShow: () => {},
  onDrag: (listener) => {
    if (query.has("drag")) setTimeout(() => listener({ name: "img_caltech101_20" }));
  },
};
