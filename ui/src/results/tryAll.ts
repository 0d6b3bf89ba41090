// Asks for the answers of many inputs, a few at a time, so that their number is seen and the rest can
// be left out.
import { count, plural } from "../format";
import type { AnswersView, AnswerView, TryFilesView } from "../types";

/** Which request decides about what is shown: the latest one. */
export class LatestRequest {
  #latest = { stopped: false };

  /** Begins a request, which stops and replaces the earlier one. */
  begin() {
    this.#latest.stopped = true;
    const own = (this.#latest = { stopped: false });
    return {
      /** No more is asked, because of `stop` or a later request. */
      isStopped: () => own.stopped,
      /** A later request decides about what is shown. */
      isReplaced: () => own !== this.#latest,
    };
  }

  /** Ends the request after the answers that are being computed. They are still shown. */
  stop() {
    this.#latest.stopped = true;
  }
}

/** A request that can be stopped and replaced. */
export type TryRequest = ReturnType<LatestRequest["begin"]>;

/**
 * Asks for all answers in turn, until the request is stopped. `show` is called with the number of
 * answers so far. Returns `null` if a later request has replaced this one. Answers with the number
 * of another request are left out.
 */
export const tryAll = async (
  request: TryRequest,
  files: TryFilesView,
  atOnce: number,
  ask: (inputs: number[], request: number) => Promise<AnswersView>,
  show: (answered: number, total: number) => void,
): Promise<AnswerView[] | null> => {
  const answers: AnswerView[] = [];
  for (let from = 0; from < files.inputs.length && !request.isStopped(); from += atOnce) {
    const next = await ask(files.inputs.slice(from, from + atOnce), files.request);
    if (request.isReplaced()) return null;
    if (next.request === files.request) answers.push(...next.answers);
    show(answers.length, files.inputs.length);
  }
  return request.isReplaced() ? null : answers;
};

/** What was not tried, and why: empty if nothing was left out. */
export const describeLeftOut = (files: TryFilesView, answered: number): string => {
  const parts: string[] = [];
  const rest = files.inputs.length - answered;
  if (rest > 0) parts.push(plural(rest, "Stopped; {n} file was not tried.", "Stopped; {n} files were not tried."));
  if (files.left_out > 0) parts.push(plural(files.left_out, "Ebb tries at most {total} files at a time; {n} more file was left out.", "Ebb tries at most {total} files at a time; {n} more files were left out.", { total: count(files.inputs.length) }));
  return parts.join(" ");
};
