// The shown run as it comes in: what was pulled last, which stretch is shown, what may be asked of it.
import { host } from "../host/choose";
import { refusal } from "../host/host";
import { noTops, type Tops } from "../chart/scene";
import { ranges, stretch, type Span } from "../chart/span";
import { attempt, lost, session } from "../session.svelte";
import type { RunRequest, RunRow, RunStatus } from "../types";
import { unpack, type Pull } from "../wire";

/** What may have happened since the last pull is asked for too. */
const AHEAD_MS = 2000;
/** How long a button waits for the run to answer. */
const PATIENCE_MS = 5000;

export class Live {
  pull = $state.raw<Pull | null>(null);
  span = $state.raw<Span>({ follow: true, lengthMs: ranges[1]!.lengthMs });
  /** The run's row in the store: says whether it trains here, and whether it can go on. */
  row = $state.raw<RunRow | null>(null);
  /** A request that the run has not answered yet. */
  asked = $state.raw<RunRequest | "resume" | null>(null);
  /** Pixel columns of the plots. */
  columns = 800;
  tops: Tops = noTops();
  #drawn = "";
  #busy = false;

  constructor(readonly run: string) {}

  get header() {
    return this.pull?.header ?? null;
  }
  get nowMs() {
    return this.header?.now_ms ?? 0;
  }
  get status(): RunStatus {
    return this.header?.status ?? "starting";
  }
  get atWork() {
    return this.status === "starting" || this.status === "training" || this.status === "paused";
  }
  /** Runs of the terminal are watched, not steered. */
  get here() {
    return this.row?.here ?? true;
  }
  get canResume() {
    return !this.atWork && this.status !== "finished" && (this.row?.can_resume ?? true);
  }

  /** Pulls once. A window that was drawn already is asked for by its version, so that nothing new costs nothing. */
  async ask() {
    if (this.#busy) return;
    this.#busy = true;
    try {
      const before = this.status;
      const { fromMs, toMs } = stretch(this.span, this.nowMs);
      const key = `${fromMs} ${toMs} ${this.columns}`;
      const seen = key === this.#drawn ? (this.header?.version ?? 0) : 0;
      const query = { run: this.run, fromMs, toMs: this.span.follow ? toMs + AHEAD_MS : toMs, columns: this.columns, seen };
      const pull = unpack(await host.pull({ ...query, fromMs: Math.floor(query.fromMs), toMs: Math.ceil(query.toMs) }));
      const first = this.pull === null;
      if (!pull.header.unchanged) this.#take(pull);
      this.#drawn = key;
      if (first || before !== this.status) void this.#lookUp(3);
    } catch (thrown) {
      if (refusal(thrown).code === "unknown_id") lost(thrown);
      else session.error = refusal(thrown).message;
    } finally {
      this.#busy = false;
    }
  }

  #take(pull: Pull) {
    if (this.asked && pull.header.status !== this.status) this.asked = null;
    this.pull = pull;
  }

  /** The list of runs may lag a moment behind the run itself. */
  async #lookUp(tries: number) {
    const rows = await host.runs().catch(() => []);
    this.row = rows.find((row) => row.id === this.run) ?? null;
    if (this.row?.status !== this.status && tries > 0) setTimeout(() => void this.#lookUp(tries - 1), 1000);
  }

  show(span: Span) {
    this.span = span;
    void this.ask();
  }

  /** Another range is another view: its axes may shrink. */
  choose(lengthMs: number) {
    this.tops = noTops();
    this.show({ follow: true, lengthMs });
  }

  async control(request: RunRequest) {
    if (!this.atWork || !this.here || this.asked === "stop") return;
    if (request !== "checkpoint") this.asked = request;
    if (request === "pause" || request === "continue") setTimeout(() => this.#forget(request), PATIENCE_MS);
    if (!(await attempt(() => host.control(this.run, request)))) this.asked = null;
  }

  /** A run that pressure holds may not answer; the button must not wait for ever. */
  #forget(request: RunRequest) {
    if (this.asked === request) this.asked = null;
  }

  async resume() {
    if (!this.canResume || this.asked) return;
    this.asked = "resume";
    if (!(await attempt(() => host.resume(this.run)))) this.asked = null;
  }
}
