// The window in a plain browser: it plays a recorded run. `?at=SECONDS` sets where the run's clock
// begins, `?speed=0` stops it there, `?theme=light|dark` overrides the system, `?check` shows the
// check of a GPU before a training, `?first-check` the one at the first launch, `?gpu` the time of a
// GPU, `?long` a run of 22 hours, `?level=warning` another level of the memory, `?machines` a group of
// machines, `?language=de` German, and `?state=ID` leads to a state of the list in
// `replay/states.ts`. Never part of a production bundle.
import type { DeviceCheckView, MachineView, PullHeader, RunRequest, RunStatus, StatusLine } from "../types";
import { pack, unpack } from "../unpackPull";
import { toCommandError, type Host } from "./host";
import { chats, table, texts } from "./replay/textAndTableInspections";
import { changeLimits } from "./replay/limits";
import { machineArrays, machines } from "./replay/machines";
import { enqueue, queued } from "./replay/queue";
import { stepsOfPlan } from "./replay/recoverySteps";
import { allStates } from "./replay/states";
import { pinFont, reach } from "./replay/reachState";
import { crowded, estimate, inspection, machine, planWith, recentFolders, refused, repeated, repeatedWith, rows, tooLarge, uncheckedGpu, weights, welcome, wrongGpu } from "./replay/standInViews";

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

/** With `?long`, a run of 400,000 steps, as it is drawn at once. */
const long = query.has("long") ? ((await (await fetch("/recorded-long.json")).json()) as { header: PullHeader; arrays: Record<string, number[]> }) : null;

const endMs = long?.header.now_ms ?? header.now_ms;
let baseMs = number("at", 0) * 1000;
let begun = performance.now();
let speed = number("speed", 1);
let status = (query.get("status") ?? "training") as RunStatus;
/** The end of the run at this moment, in the words of Rust. */
const endingOf = ({ figures }: PullHeader): Partial<StatusLine> | undefined => {
  const [step, accuracy] = [figures.step, `${((figures.best_accuracy ?? 0) * 100).toFixed(1)} %`];
  const saved = step - (step % 32);
  if (status === "finished") return { message: `Finished at step ${step}: best held-out accuracy ${accuracy}`, detail: `Best held-out accuracy: ${accuracy} at step ${figures.best_step}.` };
  const resume = `Choose Resume to continue from the checkpoint at step ${saved}; ${step - saved} steps are repeated.`;
  if (status === "ended_early") return { message: `Ended early at step ${step} while memory was short: Ebb quit unexpectedly`, detail: resume };
  if (status !== "failed") return undefined;
  const message = query.has("short") ? "A micro-batch of 1 needs 1.9 GB, but only 0.4 GB is available to Ebb; close other apps, then resume" : "The checkpoint step-000128 could not be saved: the disk is full; the checkpoint needs 1.4 GB, and 0.4 GB is free on this disk; free 1.0 GB and resume";
  return { message, detail: resume, level: "critical" };
};
/** What was done on the page last. */
let lastLine: StatusLine | undefined;
/** Grows with each line, so that it is shown. */
let lines = 0;
let stressTestEnds = 0;
/** Whether the run trains in this window. */
let here = query.has("active");
let listed = rows;
let recent = recentFolders;

const nowMs = () => Math.min(endMs, Math.round(baseMs + (performance.now() - begun) * speed));

/** In the last seconds, other apps take all but 0.4 GB below the budget line, and Ebb has given its
 * memory back. */
const takeMemory = (arrays: Record<string, number[]>) => {
  const [system, budget, others] = ["system", "budget", "others"].map((name) => arrays[`memory.${name}`]!);
  for (let i = Math.max(0, others!.length - 8); i < others!.length; i++) {
    others![i] = budget![i]! - system![i]! - 0.4 * 2 ** 30;
    for (const own of ["state", "activations", "cached"]) arrays[`memory.${own}`]![i] = 0;
  }
};

const pullAt = (ms: number, seen: number, rank: number | null = null): ArrayBuffer => {
  if (long) return pack({ ...long.header, unchanged: seen === long.header.version }, seen === long.header.version ? {} : long.arrays);
  const recorded = pulls.findLast((pull) => pull.header.now_ms <= ms) ?? pulls[0]!;
  const version = recorded.header.version + lines;
  const unchanged = version === seen;
  const arrays = recorded.slices.map(([offset, length], i): [string, number[]] => {
    const [name, values] = recording.pools[i]!;
    return [name, values.slice(offset, offset + length)];
  });
  if (query.has("short")) takeMemory(Object.fromEntries(arrays));
  // A stand-in for the GPU's time, which the recorded run does not have.
  const waited = arrays.find(([name]) => name === "loss.wait_ms");
  if (query.has("gpu") && waited) arrays.push(["loss.command_buffer_ms", waited[1].map((ms) => 4 + ms)]);
  const shown_rank = rank ?? 1;
  if (query.has("machines")) arrays.push(...machineArrays(Object.fromEntries(arrays), shown_rank));
  const active = status === "training" || status === "paused";
  const ending = endingOf(recorded.header);
  const status_line = lastLine ?? (ending ? { at_ms: ms, level: "normal" as const, message: "", detail: "", ...ending } : recorded.header.status_line);
  const { started, figures } = recorded.header;
  const header = {
    ...recorded.header, version, unchanged, status, status_line,
    // What was decided before matters only while the run trains.
    ...(!active && { last_decision: null, progress: null }),
    ...(status === "finished" && started && { started: { ...started, steps: figures.step, epochs: figures.epoch } }),
    ...(query.has("machines") && { group: machines, shown_rank }),
  };
  return pack(header, unchanged ? {} : Object.fromEntries(arrays));
};

const stepNow = () => unpack(pullAt(nowMs(), 0)).header.figures.step;

const setStatus = (next: RunStatus, nextSpeed: number, message?: string, detail = "") => {
  baseMs = nowMs();
  [begun, speed, status] = [performance.now(), nextSpeed, next];
  lines += 1;
  lastLine = message ? { at_ms: baseMs, message, detail, level: "normal" } : undefined;
};

/** The memory that the status bar shows: that of the run, if one is shown. */
const machineNow = (): MachineView => {
  if (query.has("large")) return crowded;
  const level = query.get("level") as MachineView["level"] | null;
  if (level) return { ...machine, level, used_bytes: (level === "critical" ? 23.4 : 21.9) * 2 ** 30, swap_bytes: (level === "critical" ? 1.2 : 0) * 2 ** 30 };
  if (!location.hash.startsWith("#/run/")) return machine;
  const { header, array } = unpack(pullAt(nowMs(), 0));
  const last = (name: string) => array(`memory.${name}`).at(-1) ?? 0;
  const [system_bytes, others_bytes, own_bytes] = [last("system"), last("others"), last("state") + last("activations") + last("cached")];
  return { ...machine, level: header.figures.level, pressure: header.figures.pressure ?? 0, system_bytes, others_bytes, own_bytes, used_bytes: system_bytes + others_bytes + own_bytes, swap_bytes: last("swap") };
};

/** Counts through the check of a GPU until it is done or stopped. */
let check: DeviceCheckView | null = query.has("first-check") ? { run: null, done: 37, total: 120 } : null;
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
  stop: () => setStatus("stopped", 0, `Stopped at step ${stepNow()}. Checkpoint saved in 0.8 s`, `Choose Resume to continue at step ${stepNow()}.`),
  pause: () => setStatus("paused", 0, `Paused by you at step ${stepNow()}`, `Nothing is lost. Choose Continue to resume at step ${stepNow()}.`),
  continue: () => setStatus("training", number("speed", 1)),
  checkpoint: () => setStatus(status, speed, `Checkpoint saved at step ${stepNow()} in 0.8 s`, `The run can be resumed from step ${stepNow()}.`),
};

/** Two folders were dropped. */
const twoFolders = { text: "Ebb opens one folder at a time: it opened img_caltech101_20; shelves was left out. To train on all, put them into one folder and drop that folder.", is_error: false };
/** They were dropped before the page listened. */
const launchedWithTwo = { show: { kind: "inspection", id: "demo", weights: null } as const, notice: twoFolders };

const runRows = () => (query.has("empty") ? [] : listed.map((row) => (row.id === "demo" ? { ...row, status, can_resume: true } : row)));
let [shownRows, listVersion] = [runRows(), 1];

export const host: Host = {
  welcome: async () => ({ ...welcome, platform: query.get("platform") ?? welcome.platform, language: query.get("language") === "de" ? ("de" as const) : welcome.language, ...(query.has("launched-with-two") && launchedWithTwo) }),
  machine: async () => ({
    ...machineNow(),
    device: query.has("wrong-gpu") ? wrongGpu : check?.run === null ? uncheckedGpu : machine.device,
    device_check: check,
    queued: queued(),
    active: here && (status === "training" || status === "paused") ? { run: "demo", name: "img_caltech101_20", status, epoch: 17, epochs: 30, fraction: 0.55, seconds_left: 544 } : null,
  }),
  runs: async () => runRows(),
  runList: async (seen) => {
    const rows = runRows();
    if (JSON.stringify(rows) !== JSON.stringify(shownRows)) [shownRows, listVersion] = [rows, listVersion + 1];
    return seen === listVersion ? null : { version: listVersion, rows };
  },
  chooseFolder: async () => ({ kind: "inspection", id: "demo", weights: null }),
  chooseWeights: async () => weights,
  recentFolders: async () => (query.has("recent") ? recent : []),
  openRecent: async () => ({ kind: "inspection", id: "demo", weights: null }),
  forgetRecent: async (id) => {
    recent = id === null ? [] : recent.filter((folder) => folder.id !== id);
  },
  openSample: async () => "demo",
  inspection: async (id, seen) => {
    if (seen === 1) return null;
    if (id === "reading") return { ...inspection, id, reading: true, plans: [], skipped: [], notes: [], samples: 600, files_seen: 602 };
    return { refused, texts, table, chats }[id] ?? inspection;
  },
  planWith: async (_inspection, _weights, trains) => planWith(trains ?? "all"),
  estimate: async (id, { from, trains, resolution }) => (query.has("large") ? { ...tooLarge, recovery: stepsOfPlan } : { ...estimate, cut_texts: id === "texts" && resolution < 256 ? 412 : 0, learning_rate: (from ? planWith(trains) : ({ texts, table, chats }[id] ?? inspection).plans[0]!).settings.learning_rate }),
  epochSeconds: async (_inspection, _settings, microBatch) => (query.has("gpu") ? null : microBatch === 1 ? 54 : 48),
  train: async () => {
    if (query.has("refuse")) throw { code: "busy", message: "Another run is training. Stop it first, then train this folder." };
    if (query.has("check")) await checkGpu();
    [baseMs, here] = [0, true];
    setStatus("training", number("speed", 1));
    return "demo";
  },
  enqueue: async (id) => enqueue(id === "texts" ? "reviews.csv" : "img_caltech101_20", id === "texts" ? "Text classification, Text-Mini" : "Image classification, ViT-Micro"),
  enqueueResume: async (run) => {
    const row = rows.find(({ id }) => id === run)!;
    enqueue(row.name, row.what);
  },
  resume: async (run, epochs) => {
    const done = rows.find(({ id }) => id === run)?.epochs_done ?? 0;
    if (epochs !== undefined && epochs <= done) {
      const message = `epochs = ${epochs} does not work: the run has already trained 480 steps, with 16 per epoch; choose at least ${done + 1} epochs in all`;
      throw { code: "invalid_setting", message };
    }
    here = true;
    setStatus("training", number("speed", 1));
  },
  control: async (_, request) => {
    if (check && request === "stop") check = null;
    else if (typeof request !== "string") changeLimits(request);
    else requests[request]();
  },
  stopDeviceCheck: async () => {
    check = null;
  },
  stopReading: async () => {},
  stressTest: async (request) => {
    if (request === "begin") stressTestEnds = nowMs() + 20_000;
    if (request === "end") stressTestEnds = 0;
    const seconds_left = Math.max(0, stressTestEnds - nowMs()) / 1000;
    return { bytes: seconds_left > 0 ? 4 * 2 ** 30 : 0, seconds_left, needed_bytes: null };
  },
  pull: async ({ seen, rank }) => pullAt(nowMs(), seen, rank),
  reportError: async (message) => console.error(toCommandError(message).message),
  contextMenu: async (on, run, enabled, at) => console.info(on, run, enabled, at),
  editRun: async (run, name, note, tags) => {
    const same = listed.filter((row) => row.name.toLowerCase() === name.toLowerCase());
    if (same.length > 0 && !same.some((row) => row.id === run)) throw { code: "name_taken", message: `Another run is called ${name}. Choose another name.` };
    const twice = tags.find((tag, at) => tags.indexOf(tag) < at);
    if (twice) throw { code: "failed", message: `The tag \`${twice}\` does not work: the run has this tag already` };
    listed = listed.map((row) => (row.id === run ? { ...row, name, note, tags } : row));
  },
  repeatRun: async (_run, changes) => (changes ?? []).reduce(repeatedWith, repeated),
  reveal: async () => {},
  trashRun: async (run) => {
    listed = listed.filter(({ id }) => id !== run);
  },
  importRun: async () => {
    if (query.has("damaged")) throw { code: "failed", message: "/home/ann/birds.ebbrun was not imported: it is damaged. Copy it again." };
    return { run: "r3", notice: null };
  },
  enableActions: async () => {},
  setLanguage: async () => {},
  quit: async () => {},
  closeWindow: async () => {},
  zoom: async () => {},
  onAction: () => {},
  onShow: () => {},
  onNotice: (listener) => {
    if (query.has("dropped-two")) setTimeout(() => listener(twoFolders));
  },
  onDrag: (listener) => {
    if (query.has("drag")) setTimeout(() => listener({ name: "img_caltech101_20" }));
  },
};
