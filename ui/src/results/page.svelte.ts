// The results that are shown, the selected cell of the confusion matrix, and the errors of single
// panes, which stay where they arose.
import { toCommandError } from "../host/host";
import { resultsHost } from "../host/results";
import type { CommandError, ResultSample, ResultsView } from "../types";

/** Indices of the correct and the predicted class. */
export type Cell = [number, number];

export class ResultsPage {
  view = $state.raw<ResultsView | null>(null);
  /** Why the results cannot be shown. */
  error = $state.raw<CommandError | null>(null);
  cell = $state.raw<Cell | null>(null);
  /** The samples of the selected cell. */
  samples = $state.raw<ResultSample[] | null>(null);
  /** Why there are no thumbnails. */
  dataMissing = $state.raw<string | null>(null);
  /** Grows when the dataset was located, so that thumbnails are loaded again. */
  attempt = $state(0);

  constructor(readonly run: string) {}

  get report() {
    return this.view?.report ?? null;
  }

  /** Reads the results; starts an evaluation if there are none and nothing trains. */
  async refresh() {
    try {
      const first = this.view === null;
      this.view = await resultsHost.results(this.run);
      this.error = null;
      const { report, evaluating, problem, busy } = this.view;
      if (first && !report && !evaluating && !problem && !busy) await this.evaluate();
    } catch (thrown) {
      this.error = toCommandError(thrown);
    }
  }

  async evaluate() {
    try {
      await resultsHost.evaluate(this.run);
      this.view = await resultsHost.results(this.run);
    } catch (thrown) {
      this.error = toCommandError(thrown);
    }
  }

  async select(cell: Cell | null) {
    this.cell = cell;
    this.samples = null;
    if (!cell) return;
    try {
      const samples = await resultsHost.samples(this.run, ...cell);
      if (this.cell === cell) this.samples = samples;
    } catch (thrown) {
      this.error = toCommandError(thrown);
    }
  }

  async locate() {
    try {
      if (await resultsHost.locateData(this.run)) {
        await this.refresh();
        [this.dataMissing, this.attempt] = [null, this.attempt + 1];
      }
    } catch (thrown) {
      this.dataMissing = toCommandError(thrown).message;
    }
  }
}

/** Bytes as an address that the page may show: its policy allows `data:`, but no `blob:`. */
export const dataAddress = (bytes: ArrayBuffer, type = "image/jpeg"): Promise<string> =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(new Blob([bytes], { type }));
  });
