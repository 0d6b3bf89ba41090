// A recorded run seen at an instant of its clock. A small stand-in for Rust's reducer, for developing the window only:
// it thins instead of decimating, and its words are fewer.
import type { Figures, LevelSpan, Mark, PullHeader, RunEvent, RunStatus, StatusLine } from "../../types";
import { pack } from "../../wire";

type Arrays = Record<string, number[]>;

const number = (value: number | "nan" | "inf" | "-inf") => (typeof value === "number" ? value : Number.NaN);

const emptyFigures: Figures = {
  step: 0, epoch: 1, samples_per_second: null, seconds_left: null, own_bytes: null, budget_bytes: null, pressure: null,
  level: "normal", level_since_ms: 0, micro_batch: null, micro_batches: null, loss: null, smoothed_loss: null, held_out_loss: null,
  accuracy: null, best_accuracy: null, learning_rate: null, changes: 0, skipped: 0, step_metrics: {}, held_out_metrics: {},
};

const arrayNames = {
  memory: ["at", "system", "others", "state", "activations", "budget"], micro: ["at", "value"],
  loss: ["at", "raw", "smoothed"], evaluation: ["at", "loss"],
};

class Fold {
  figures = { ...emptyFigures };
  line: StatusLine = { at_ms: 0, message: "Starting", detail: "", level: "normal" };
  marks: Mark[] = [];
  spans: LevelSpan[] = [];
  notes: string[] = [];
  arrays: Arrays = Object.fromEntries(Object.entries(arrayNames).flatMap(([a, bs]) => bs.map((b) => [`${a}.${b}`, []])));

  push(name: keyof typeof arrayNames, ...values: number[]) {
    arrayNames[name].forEach((part, i) => this.arrays[`${name}.${part}`]!.push(values[i]!));
  }

  memory({ at_ms, sample, state_bytes, level, budget_bytes, pressure, micro_batch }: RunEvent & { kind: "memory" }) {
    const others = sample.total_bytes - sample.available_bytes - sample.own_bytes - sample.system_bytes;
    const state = Math.min(state_bytes, sample.own_bytes);
    this.push("memory", at_ms, sample.system_bytes, others, state, sample.own_bytes - state, sample.system_bytes + others + budget_bytes);
    this.push("micro", at_ms, micro_batch);
    const open = this.spans.at(-1);
    if (open && open.level === level && open.to_ms === this.arrays["memory.at"]!.at(-2)) open.to_ms = at_ms;
    else if (level !== "normal") this.spans.push({ from_ms: at_ms, to_ms: at_ms, level });
    if (level !== this.figures.level) this.figures.level_since_ms = at_ms;
    Object.assign(this.figures, { own_bytes: sample.own_bytes, budget_bytes, pressure, level, micro_batch });
    this.line.level = level;
  }

  decision({ at_ms, decision, previous_micro_batch: from, micro_batches, message }: RunEvent & { kind: "decision" }) {
    const { change, micro_batch: to, cause, reason } = decision;
    const detail = `The training is unchanged: 64 samples per step, now in ${micro_batches} micro-batches of ${to}.`;
    this.line = { at_ms, message, detail, level: this.figures.level };
    Object.assign(this.figures, { micro_batch: to, micro_batches });
    this.push("micro", at_ms, to);
    if (from === 0) return;
    this.figures.changes++;
    this.marks.push({ at_ms, change, from, to, cause, short: message.split(":")[0]!, reason });
  }

  step(event: RunEvent & { kind: "step" }) {
    const raw = number(event.loss);
    const smoothed = 0.84 * (this.figures.smoothed_loss ?? raw) + 0.16 * raw;
    this.push("loss", event.at_ms, raw, smoothed);
    Object.assign(this.figures, {
      step: event.step, epoch: event.epoch + 1, loss: raw, smoothed_loss: smoothed, micro_batches: event.micro_batches.length,
      samples_per_second: event.samples_per_second, learning_rate: event.learning_rate,
    });
  }

  event(event: RunEvent) {
    if (event.kind === "memory") this.memory(event);
    if (event.kind === "decision") this.decision(event);
    if (event.kind === "step") this.step(event);
    if (event.kind === "evaluation") {
      this.push("evaluation", event.at_ms, number(event.loss));
      this.figures.held_out_loss = number(event.loss);
    }
    if (event.kind === "skipped") this.notes.push(`${event.item}: ${event.reason}`);
    if (event.kind === "skipped") this.figures.skipped++;
  }
}

/** Cuts the window out of the arrays, one point beyond each edge, thinned to two points a column. */
const cut = (arrays: Arrays, fromMs: number, toMs: number, columns: number): Arrays =>
  Object.fromEntries(
    Object.entries(arrays).map(([name, values]) => {
      const at = arrays[`${name.split(".")[0]}.at`]!;
      const first = Math.max(0, at.findIndex((ms) => ms >= fromMs) - 1);
      const last = at.findLastIndex((ms) => ms <= toMs) + 2;
      const stride = name.startsWith("evaluation") ? 1 : Math.max(1, Math.ceil((last - first) / (2 * columns)));
      return [name, values.slice(first, last).filter((_, i, all) => i % stride === 0 || i === all.length - 1)];
    }),
  );

export interface Moment {
  nowMs: number;
  status: RunStatus;
  /** What was asked of the run last, if it ended. */
  last?: StatusLine;
}

export const pullAt = (events: RunEvent[], moment: Moment, fromMs: number, toMs: number, columns: number, seen: number): ArrayBuffer => {
  const past = events.filter((event) => event.at_ms <= moment.nowMs);
  const fold = new Fold();
  for (const event of past) fold.event(event);
  const started = events.find((event) => event.kind === "started") ?? null;
  if (started && fold.figures.step > 0) fold.figures.seconds_left = ((started.steps - fold.figures.step) * moment.nowMs) / 1000 / fold.figures.step;
  const version = past.length + (moment.last ? 1 : 0);
  const header: Omit<PullHeader, "arrays"> = {
    version, unchanged: version === seen, status: moment.status, started, now_ms: moment.nowMs, now_unix_ms: (started?.unix_ms ?? 0) + moment.nowMs, from_ms: fromMs, to_ms: toMs,
    figures: fold.figures, status_line: moment.last ?? fold.line, marks: fold.marks, spans: fold.spans, metrics_text: [], notes: fold.notes, last_minutes: [],
  };
  return pack(header, header.unchanged ? {} : cut(fold.arrays, fromMs, toMs, columns));
};
