// A conversation with the model of a run, and beside it with the model that the run started from.
// Answers are generated one after the other and shown while they grow.
import { toCommandError } from "../host/host";
import type { ChatHost } from "../host/chat";
import type { ChatAnswerView, ChatRequest } from "../types";

/** How answers are generated. */
export type Sampling = Omit<ChatRequest, "turns" | "message" | "base">;

/** An answer of one of the models. */
export interface ShownAnswer extends ChatAnswerView {
  base: boolean;
}

export interface Turn {
  message: string;
  /** Of the trained model, then of the base if it is compared with. */
  answers: ShownAnswer[];
}

/** Milliseconds between two looks at an answer. */
const INTERVAL = 120;

/** Earlier messages with the answers of a model, or of the other one if it gave none. A message
 * without an answer is left out. */
export const history = (turns: Turn[], base: boolean): [string, string][] =>
  turns.flatMap(({ message, answers }) => {
    const said = answers.find((answer) => answer.base === base && answer.text) ?? answers.find(({ text }) => text);
    return said ? [[message, said.text] as [string, string]] : [];
  });

export class Conversation {
  turns = $state.raw<Turn[]>([]);
  busy = $state(false);
  /** The answers that are generated. */
  private running: number[] = [];
  /** Grows with each conversation, so that answers of an earlier one are not shown. */
  private version = 0;

  constructor(
    readonly run: string,
    private readonly host: ChatHost,
    private readonly interval = INTERVAL,
  ) {}

  /** Sends a message. It is taken back if no model begins to answer, and the error is thrown. */
  async send(message: string, sampling: Sampling, compare: boolean): Promise<void> {
    const version = this.version;
    const earlier = this.turns;
    const models = compare ? [false, true] : [false];
    const turn: Turn = { message, answers: models.map((base) => ({ base, text: "", is_done: false, notes: [], problem: null })) };
    [this.turns, this.busy] = [[...earlier, turn], true];
    const show = (column: number, view: ChatAnswerView) => {
      if (version !== this.version) return;
      turn.answers = turn.answers.map((answer, i) => (i === column ? { ...answer, ...view } : answer));
      this.turns = [...earlier, { ...turn }];
    };
    try {
      const begun: number[] = [];
      // In this order, because the models answer one after the other.
      for (const base of models) begun.push(await this.host.begin(this.run, { ...sampling, turns: history(earlier, base), message, base }));
      if (version !== this.version) return void begun.forEach((number) => void this.host.stop(number).catch(() => {}));
      this.running = begun;
      await Promise.all(begun.map((number, column) => this.follow(number, (view) => show(column, view))));
    } catch (thrown) {
      if (version !== this.version) return;
      this.turns = earlier;
      throw toCommandError(thrown);
    } finally {
      if (version === this.version) [this.busy, this.running] = [false, []];
    }
  }

  private async follow(number: number, show: (view: ChatAnswerView) => void): Promise<void> {
    for (;;) {
      const view = await this.host.answer(number);
      show(view);
      if (view.is_done) return;
      await new Promise((resolve) => setTimeout(resolve, this.interval));
    }
  }

  /** Ends the answers with what there is of them. */
  stop() {
    for (const number of this.running) void this.host.stop(number).catch(() => {});
  }

  /** Forgets everything. */
  reset() {
    this.stop();
    this.version += 1;
    [this.turns, this.busy, this.running] = [[], false, []];
  }
}
