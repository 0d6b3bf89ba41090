// What the results page asks of the program. It is apart from the other requests, so that it is
// loaded with the page.
import type { AnswersView, ComparisonView, ExportKind, ExportView, InputView, ReportView, ResultSample, ResultsView, Show, TryFilesView } from "../types";
import { invoke, onEvent } from "./tauri";

export interface ResultsHost {
  results(run: string): Promise<ResultsView>;
  /** Evaluates in the background; `results` reports the progress. */
  evaluate(run: string): Promise<void>;
  /** The page was left. */
  leave(run: string): Promise<void>;
  /** The samples of one cell of the confusion matrix. */
  samples(run: string, cls: number, predicted: number): Promise<ResultSample[]>;
  compare(run: string, other: string): Promise<ComparisonView>;
  /** A JPEG. */
  thumbnail(run: string, sample: number): Promise<ArrayBuffer>;
  /** Shows the file of a sample in the file manager. */
  reveal(run: string, sample: number): Promise<void>;
  /** Opens the system's dialog for the folder of a run. False if it was cancelled. */
  locateData(run: string): Promise<boolean>;
  exportChoices(run: string): Promise<ExportView[]>;
  /** Opens the system's dialog for a place. Returns the name of what was written, or `null`. */
  exportRun(run: string, kind: ExportKind): Promise<string | null>;
  /** Opens the system's dialog for files. */
  chooseFiles(): Promise<InputView[]>;
  addPicture(bytes: ArrayBuffer): Promise<InputView>;
  addText(text: string): Promise<InputView>;
  /** Begins a request. What is tried: a folder stands for the files in it, up to a limit. */
  files(run: string, inputs: number[]): Promise<TryFilesView>;
  /** The answers of one request are saved together. They replace those of earlier requests. */
  answers(run: string, inputs: number[], request: number): Promise<AnswersView>;
  /** A JPEG. */
  inputPicture(input: number): Promise<ArrayBuffer>;
  /** A byte for each pixel of a square, 255 where the model looked most. */
  saliency(run: string, input: number): Promise<ArrayBuffer>;
  /** Opens the system's dialog for a file. Returns its name, or `null`. */
  saveAnswers(request: number): Promise<string | null>;
  /** Evaluates the model on a dropped folder. */
  evaluateInput(run: string, input: number): Promise<ReportView>;
  /** Opens a dropped folder as a dataset. */
  openInput(input: number): Promise<Show>;
  /** Calls `listener` with what is dropped on the window. Returns a function that stops this. */
  onDropped(listener: (inputs: InputView[]) => void): () => void;
}

const app: ResultsHost = {
  results: (run) => invoke("results", { run }),
  evaluate: (run) => invoke("evaluate_run", { run }),
  leave: (run) => invoke("leave_results", { run }),
  samples: (run, cls, predicted) => invoke("result_samples", { run, class: cls, predicted }),
  compare: (run, other) => invoke("compare_results", { run, other }),
  thumbnail: (run, sample) => invoke("result_thumbnail", { run, sample }),
  reveal: (run, sample) => invoke("reveal_sample", { run, sample }),
  locateData: (run) => invoke("locate_data", { run }),
  exportChoices: (run) => invoke("export_choices", { run }),
  exportRun: (run, kind) => invoke("export_run", { run, kind }),
  chooseFiles: () => invoke("try_choose"),
  addPicture: (bytes) => invoke("try_picture", bytes),
  addText: (text) => invoke("try_text", { text }),
  files: (run, inputs) => invoke("try_files", { run, inputs }),
  answers: (run, inputs, request) => invoke("try_answers", { run, inputs, request }),
  inputPicture: (input) => invoke("try_thumbnail", { input }),
  saliency: (run, input) => invoke("try_saliency", { run, input }),
  saveAnswers: (request) => invoke("try_save", { request }),
  evaluateInput: (run, input) => invoke("evaluate_input", { run, input }),
  openInput: (input) => invoke("open_input", { input }),
  onDropped: (listener) => onEvent("dropped", listener),
};

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const resultsHost: ResultsHost = replays ? (await import("./replay/results")).resultsHost : app;
