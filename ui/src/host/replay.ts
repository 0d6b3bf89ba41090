// The window in a plain browser: it plays a recorded run. `?at=SECONDS` sets where the run's clock
// begins, `?speed=0` stops it there, `?theme=light|dark` overrides the system, `?check` shows the
// check of a GPU before a training, and `?state=ID` leads to a state of the list in
// `replay/states.ts`. Never part of a production bundle.
import type { PullHeader, RunRequest, RunStatus, StatusLine } from "../types";
import { pack } from "../pullFormat";
import { toCommandError, type Host } from "./host";
import { table, texts } from "./replay/datasets";
import { allStates } from "./replay/states";
import { pinFont, reach } from "./replay/steps";
import { estimate, inspection, machine, planWith, refused, repeated, rows, weights, welcome } from "./replay/views";

/** Written by crates/runlog/tests/recorded_chart_data.rs: pulls of the whole run so far, one every
 * two seconds of its clock. */
interface Recording {
  /** The values of each array. */
  pools: [string, number[]][];
  /** `header` lists the fields that changed since the previous pull; `slices` are offset and
   * length in each pool. */
  pulls: { header: Partial<PullHeader>; slices: [number, number][] }[];
}

const query = new URLSearchParams(location.search);
const number = (name: string, otherwise: number) => Number(query.get(name) ?? otherwise);
const theme = query.get("theme");
if (theme) document.documentElement.dataset.theme = theme;

const state = allStates.find(({ id }) => id === query.get("state"));
if (state) {
  await pinFont();
  void reach(state);
}

const recording = (await (await fetch("/recorded.json")).json()) as Recording;
let header = {} as PullHeader;
const pulls = recording.pulls.map((pull) => ({ header: (header = { ...header, ...pull.header }), slices: pull.slices }));

const endMs = header.now_ms;
let baseMs = number("at", 0) * 1000;
let begun = performance.now();
let speed = number("speed", 1);
let status = (query.get("status") ?? "training") as RunStatus;
const endings: Partial<Record<RunStatus, StatusLine>> = {
  finished: { at_ms: baseMs, message: "Finished after 480 steps", detail: "The best checkpoint is that of epoch 27.", level: "normal" },
  failed: { at_ms: baseMs, message: "The disk is full, so no checkpoint could be saved", detail: "Free 1.4 GB, then resume from step 96.", level: "critical" },
};
let lastLine = endings[status];
/** Grows with each line, so that it is shown. */
let lines = 0;
let stressTestEnds = 0;
/** Whether the run trains in this window. */
let here = query.has("active");
let listed = rows;

const nowMs = () => Math.min(endMs, Math.round(baseMs + (performance.now() - begun) * speed));

const pullAt = (ms: number, seen: number): ArrayBuffer => {
  const recorded = pulls.findLast((pull) => pull.header.now_ms <= ms) ?? pulls[0]!;
  const version = recorded.header.version + lines;
  const unchanged = version === seen;
  const arrays = recorded.slices.map(([offset, length], i): [string, number[]] => {
    const [name, values] = recording.pools[i]!;
    return [name, values.slice(offset, offset + length)];
  });
  const header = { ...recorded.header, version, unchanged, status, status_line: lastLine ?? recorded.header.status_line };
  return pack(header, unchanged ? {} : Object.fromEntries(arrays));
};

const setStatus = (next: RunStatus, nextSpeed: number, message?: string, detail = "Nothing is lost. Resume continues from here.") => {
  baseMs = nowMs();
  [begun, speed, status] = [performance.now(), nextSpeed, next];
  lines += 1;
  lastLine = message ? { at_ms: baseMs, message, detail, level: "normal" } : undefined;
};

/** Counts through the check of a GPU until it is done or stopped. */
let check: { run: string; done: number; total: number } | null = null;
const checkGpu = async () => {
  const total = 120;
  for (let done = 0; done < total; done++) {
    check = { run: "demo", done, total };
    await new Promise((next) => setTimeout(next, 250));
    if (!check) throw { code: "stopped", message: "stopped while the GPU was being checked; the next run repeats the check" };
  }
  check = null;
};

const requests: Record<Exclude<RunRequest, object>, () => void> = {
  stop: () => setStatus("stopped", 0, "Stopped. Checkpoint saved in 0.8 s"),
  pause: () => setStatus("paused", 0, "Paused by you"),
  continue: () => setStatus("training", number("speed", 1)),
  checkpoint: () => setStatus(status, speed, "Checkpoint saved in 0.8 s", "The training goes on."),
};

export const host: Host = {
  welcome: async () => ({ ...welcome, platform: query.get("platform") ?? welcome.platform }),
  machine: async () => ({
    ...machine,
    device_check: check,
    active: here && (status === "training" || status === "paused") ? { run: "demo", name: "img_caltech101_20", status, epoch: 17, epochs: 30, fraction: 0.55, seconds_left: 544 } : null,
  }),
  runs: async () => (query.has("empty") ? [] : listed.map((row) => (row.id === "demo" ? { ...row, status, can_resume: true } : row))),
  chooseFolder: async () => ({ kind: "inspection", id: "demo", weights: null }),
  chooseWeights: async () => weights,
  openSample: async () => "demo",
  inspection: async (id, seen) => {
    if (seen === 1) return null;
    if (id === "reading") return { ...inspection, id, reading: true, plans: [], skipped: [], notes: [], samples: 600, files_seen: 602 };
    return { refused, texts, table }[id] ?? inspection;
  },
  planWith: async (_inspection, _weights, trains) => planWith(trains ?? "all"),
  estimate: async () => (query.has("large") ? { ...estimate, micro_batch: 0, refusal: { needed_bytes: 4 * 2 ** 30, available_bytes: 0.4 * 2 ** 30 } } : estimate),
  epochSeconds: async () => 48,
  train: async () => {
    if (query.has("refuse")) throw { code: "busy", message: "Another run is training. Stop it first, then train this folder." };
    if (query.has("check")) await checkGpu();
    [baseMs, here] = [0, true];
    setStatus("training", number("speed", 1));
    return "demo";
  },
  resume: async () => {
    here = true;
    setStatus("training", number("speed", 1));
  },
  control: async (_, request) => {
    if (check && request === "stop") check = null;
    else if (typeof request === "string") requests[request]();
  },
  stressTest: async (request) => {
    if (request === "begin") stressTestEnds = nowMs() + 20_000;
    if (request === "end") stressTestEnds = 0;
    const seconds_left = Math.max(0, stressTestEnds - nowMs()) / 1000;
    return { bytes: seconds_left > 0 ? 4 * 2 ** 30 : 0, seconds_left };
  },
  pull: async ({ seen }) => pullAt(nowMs(), seen),
  reportError: async (message) => console.error(toCommandError(message).message),
  runMenu: async (run, enabled) => console.info(run, enabled),
  editRun: async (run, name, note) => {
    listed = listed.map((row) => (row.id === run ? { ...row, name, note } : row));
  },
  repeatRun: async () => repeated,
  reveal: async () => {},
  trashRun: async (run) => {
    listed = listed.filter(({ id }) => id !== run);
  },
  enableActions: async () => {},
  quit: async () => {},
  closeWindow: async () => {},
  zoom: async () => {},
  onAction: () => {},
  onShow: () => {},
  onDrag: (listener) => {
    if (query.has("drag")) setTimeout(() => listener({ name: "img_caltech101_20" }));
  },
};
