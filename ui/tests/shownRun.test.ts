// A live run costs little: everything is pulled twice a second, and only the header in between.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { PullQuery } from "../src/host/host";
import type { PullHeader, RunStatus } from "../src/types";
import { pack } from "../src/unpackPull";

const pulled: number[] = [];
const ranks: (number | null)[] = [];
let status: RunStatus = "training";
let version = 1;
let stress_tests: PullHeader["stress_tests"] = [];
const header = () => ({
  version, unchanged: false, status, now_ms: 60_000 + version, figures: { step: 5, level: "normal", changes: 0, own_bytes: version },
  status_line: { message: "Training", level: "normal" }, notes: [], marks: [], spans: [], stress_tests,
}) as unknown as PullHeader;

vi.mock("../src/host/selectHost", () => ({
  host: {
    runs: async () => [],
    pull: async ({ columns, seen, rank }: PullQuery) => {
      pulled.push(columns);
      ranks.push(rank);
      return pack({ ...header(), unchanged: seen === version }, {});
    },
  },
}));

const local = new Map<string, string>();
vi.stubGlobal("localStorage", { getItem: (key: string) => local.get(key) ?? null, setItem: (key: string, value: string) => local.set(key, value) });
vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});
const { ShownRun } = await import("../src/training/shownRun.svelte");

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout", "clearTimeout"] });
  [status, version] = ["training", 1];
  pulled.length = 0;
});
afterEach(() => vi.useRealTimers());

/** The first pull chooses the range of the second. */
const opened = async (run: string) => {
  const live = new ShownRun(run);
  await live.refresh();
  await live.refresh();
  pulled.length = 0;
  return live;
};

const after = async (ms: number, live: InstanceType<typeof ShownRun>) => {
  vi.advanceTimersByTime(ms);
  version += 1;
  await live.refresh();
};

test("between two pulls of everything, only the newest memory is shown", async () => {
  const live = await opened("a");
  await after(200, live);
  expect(pulled).toEqual([4]);
  expect([live.newest?.figures.own_bytes, live.header?.figures.own_bytes]).toEqual([2, 1]);
  await after(200, live);
  await after(200, live);
  expect(pulled).toEqual([4, 4, 800]);
  expect(live.header?.figures.own_bytes).toBe(4);
});

test("an end is shown at once", async () => {
  const live = await opened("b");
  status = "finished";
  await after(200, live);
  expect(pulled).toEqual([4, 800]);
  expect(live.status).toBe("finished");
});

test("a range that the reader chooses is pulled at once", async () => {
  const live = await opened("c");
  vi.advanceTimersByTime(200);
  live.show({ follow: true, lengthMs: 120_000 });
  await vi.waitFor(() => expect(pulled).toEqual([800]));
});

test("the machine that the reader chooses is pulled at once", async () => {
  const live = await opened("m");
  live.showRank(2);
  await vi.waitFor(() => expect(pulled).toEqual([800]));
  expect([ranks.at(0), ranks.at(-1)]).toEqual([null, 2]);
});

test("a stress test is the run's own: it is there after a reload, and only once", async () => {
  stress_tests = [{ from_ms: 1_000, to_ms: 21_000, bytes: 4 }];
  const live = await opened("s");
  expect(live.stress).toEqual([{ fromMs: 1_000, toMs: 21_000, bytes: 4 }]);
  // A second test, of which the run has not told yet.
  live.stressed(5);
  expect(live.stress.map(({ bytes }) => bytes)).toEqual([4, 5]);
  stress_tests = [...stress_tests, { from_ms: live.nowMs - 300, to_ms: live.nowMs, bytes: 5 }];
  await after(500, live);
  expect(live.stress.map(({ bytes }) => bytes)).toEqual([4, 5]);
  stress_tests = [];
});
