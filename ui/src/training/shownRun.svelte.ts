// The run that is shown: its latest pull, the time range, and the requests that it accepts.
import { host } from "../host/selectHost";
import { toCommandError } from "../host/host";
import { smoothedSteps } from "../chart/viewOptions";
import { options } from "../chart/viewOptions.svelte";
import { noTops, type StressSpan, type Tops } from "../chart/scene";
import { savedSpan, saveSpan } from "../chart/savedSpans";
import { firstSpan, timeRange, type Span } from "../chart/timeRange";
import { attempt, leaveUnknown, otherTraining, resumeOrEnqueue, session } from "../appState.svelte";
import type { Mark, PullHeader, RunRequest, RunRow, RunStatus } from "../types";
import { unpack, type Pull } from "../unpackPull";

/** A pull reaches this far beyond the last known time, to include what has happened since. */
const AHEAD_MS = 2000;
/** The page's own times of a stress test differ from those of the run by at most so much. */
const RECORDED_MS = 1500;
/** How long a button waits for the run to respond. */
const TIMEOUT_MS = 5000;

/** Everything is pulled again after this time, in milliseconds: each time costs a layout and a
 * repaint. What matters at once, and what the reader does, does not wait. */
const SHORTEST_MS = 450;

/** Columns of a pull that has every change of the run. */
const ALL_COLUMNS = 16_384;

/** What is shown as soon as it changes. */
const urgent = ({ status, status_line, figures, notes }: PullHeader) =>
  JSON.stringify([status, status_line?.message, status_line?.level, figures.level, figures.changes, notes.length]);

export class ShownRun {
  /** The pull that the page shows. */
  pull = $state.raw<Pull | null>(null);
  /** The header of the newest pull, up to half a second ahead of `pull`. */
  newest = $state.raw<PullHeader | null>(null);
  span = $state.raw<Span>(firstSpan("starting"));
  /** Position of the cursor, and whether it stays when the pointer leaves. */
  cursorMs = $state<number | null>(null);
  pinned = $state(false);
  /** The run's row in the store: whether it trains in this process, and whether it can be
   * resumed. */
  row = $state.raw<RunRow | null>(null);
  /** A request that the run has not responded to yet. */
  pending = $state.raw<RunRequest | "resume" | null>(null);
  /** The rank of a group whose memory the reader wants to see. */
  #rank = $state<number | null>(null);
  /** Pixel columns of the plots. */
  columns = 800;
  tops: Tops = noTops();
  /** Stress tests since the page was loaded: the run records one between two micro-batches. */
  #stressed = $state.raw<StressSpan[]>([]);
  #drawn = "";
  #busy = false;
  /** When everything was pulled last, and for which range and smoothing. */
  #shownAt = 0;
  #chosen: unknown[] = [];

  constructor(readonly run: string) {
    this.span = savedSpan(run) ?? this.span;
  }

  get header() {
    return this.pull?.header ?? null;
  }
  get nowMs() {
    return this.header?.now_ms ?? 0;
  }
  get status(): RunStatus {
    return this.header?.status ?? "starting";
  }
  get active() {
    return this.status === "starting" || this.status === "training" || this.status === "paused";
  }
  /** Runs of the terminal can be watched, but not controlled. */
  get here() {
    return this.row?.here ?? true;
  }
  get canResume() {
    return !this.active && this.status !== "finished" && (this.row?.can_resume ?? true);
  }

  /** The stress tests of the run, also those that it has not recorded yet. */
  get stress(): StressSpan[] {
    const recorded = (this.header?.stress_tests ?? []).map(({ from_ms, to_ms, bytes }) => ({ fromMs: from_ms, toMs: to_ms, bytes }));
    const isRecorded = (own: StressSpan) => recorded.some(({ fromMs, toMs }) => fromMs <= own.toMs && own.fromMs <= toMs + RECORDED_MS);
    return [...recorded, ...this.#stressed.filter((own) => !isRecorded(own))];
  }

  /** Pulls once: everything, if that is due or the reader chose another range; otherwise only the
   * header, in which memory is shown. */
  async refresh() {
    if (this.#busy) return;
    this.#busy = true;
    try {
      const smoothed = smoothedSteps(options.current.smoothing, this.header?.figures.step ?? 0);
      const chosen = [this.span, this.columns, options.current.smoothing, this.#rank];
      const same = chosen.every((value, i) => value === this.#chosen[i]);
      const due = performance.now() - this.#shownAt >= SHORTEST_MS;
      if (!this.newest || !same || due || !(await this.#pullHeader(this.newest))) await this.#pullAll(chosen, smoothed);
    } catch (thrown) {
      if (toCommandError(thrown).code === "unknown_id") leaveUnknown(thrown);
      else session.error = toCommandError(thrown).message;
    } finally {
      this.#busy = false;
    }
  }

  /** Pulls hardly more than the header. Returns whether that is enough for now. */
  async #pullHeader({ now_ms, version }: PullHeader) {
    const query = { run: this.run, fromMs: Math.floor(now_ms), toMs: Math.ceil(now_ms) + AHEAD_MS, columns: 4, seen: version, smoothedSteps: 1, rank: this.#rank };
    const { header } = unpack(await host.pull(query));
    if (!header.unchanged) this.newest = header;
    return !this.header || urgent(this.newest ?? header) === urgent(this.header);
  }

  /** Pulls the range that is shown. If it was drawn already, its version is sent, so that an
   * unchanged run sends no data. */
  async #pullAll(chosen: unknown[], smoothedSteps: number) {
    const before = this.status;
    const { fromMs, toMs } = timeRange(this.span, this.nowMs);
    const rank = this.#rank;
    const key = `${fromMs} ${toMs} ${this.columns} ${smoothedSteps} ${rank}`;
    const seen = key === this.#drawn ? (this.header?.version ?? 0) : 0;
    const end = this.span.follow ? toMs + AHEAD_MS : toMs;
    const pull = unpack(await host.pull({ run: this.run, fromMs: Math.floor(fromMs), toMs: Math.ceil(end), columns: this.columns, seen, smoothedSteps, rank }));
    const first = this.pull === null;
    if (!pull.header.unchanged) this.#accept(pull);
    this.#drawn = key;
    this.#chosen = chosen;
    this.#shownAt = performance.now();
    // Drawn by the next pull.
    if (first && !savedSpan(this.run)) this.span = firstSpan(this.status);
    if (first || before !== this.status) void this.#loadRow(3);
  }

  #accept(pull: Pull) {
    if (this.pending && pull.header.status !== this.status) this.pending = null;
    this.pull = pull;
    this.newest = pull.header;
  }

  /** The list of runs may be older than the run itself; then this tries again. */
  async #loadRow(tries: number) {
    const rows = await host.runs().catch(() => []);
    this.row = rows.find((row) => row.id === this.run) ?? null;
    if (this.row?.status !== this.status && tries > 0) setTimeout(() => void this.#loadRow(tries - 1), 1000);
  }

  /** A stress test holds memory now. */
  stressed(bytes: number) {
    if (!this.newest) return; // the time of the run is not known yet
    const last = this.#stressed.at(-1);
    const goesOn = last && last.bytes === bytes && this.nowMs - last.toMs < 2000;
    const span = { fromMs: goesOn ? last.fromMs : this.nowMs, toMs: this.nowMs, bytes };
    this.#stressed = [...(goesOn ? this.#stressed.slice(0, -1) : this.#stressed), span];
  }

  show(span: Span) {
    this.span = span;
    saveSpan(this.run, span);
    void this.refresh();
  }

  /** Shows the memory of a rank. Another machine has another axis. */
  showRank(rank: number) {
    this.#rank = rank;
    void this.refresh();
  }

  /** Shows the last `lengthMs`. */
  chooseRange(lengthMs: number) {
    this.show({ follow: true, lengthMs });
  }

  /** Shows a range that the reader wants to see closely: the axes of curves may shrink. */
  zoomTo(span: Span) {
    this.tops = { ...noTops(), memory: this.tops.memory, micro: this.tops.micro };
    this.show(span);
  }

  /** Moves the cursor to a time, and the range if it is outside. */
  goTo(ms: number) {
    const { fromMs, toMs } = timeRange(this.span, this.nowMs);
    if (ms < fromMs || ms > toMs) {
      const length = Math.min(toMs - fromMs, this.nowMs);
      const from = Math.min(Math.max(0, ms - length / 2), Math.max(0, this.nowMs - length));
      this.show({ follow: false, fromMs: from, toMs: from + length });
    }
    this.cursorMs = ms;
    this.pinned = true;
  }

  /** Every change of the run, oldest first. */
  async changes(): Promise<Mark[]> {
    const query = { run: this.run, fromMs: 0, toMs: Math.ceil(this.nowMs) + AHEAD_MS, columns: ALL_COLUMNS, seen: 0, smoothedSteps: 1, rank: this.#rank };
    return unpack(await host.pull(query)).header.marks;
  }

  async control(request: RunRequest) {
    if (!this.active || !this.here || this.pending === "stop") return;
    if (request !== "checkpoint") this.pending = request;
    if (request === "pause" || request === "continue") setTimeout(() => this.#giveUp(request), TIMEOUT_MS);
    if (!(await attempt(() => host.control(this.run, request)))) this.pending = null;
  }

  /** Sends a request that no button waits for. Returns why it was refused. */
  async send(request: RunRequest): Promise<string | null> {
    return host.control(this.run, request).then(() => null, (thrown: unknown) => toCommandError(thrown).message);
  }

  /** A run that waits for memory may not respond; the button must not wait forever. */
  #giveUp(request: RunRequest) {
    if (this.pending === request) this.pending = null;
  }

  async resume() {
    if (!this.canResume || this.pending) return;
    this.pending = "resume";
    const waits = otherTraining(this.run) !== null;
    if (!(await attempt(() => resumeOrEnqueue(this.run))) || waits) this.pending = null;
  }
}
