// Made-up results for the window in a plain browser. `?results=bad|regression|mixed|language|chat|
// texts|compression|evaluating|missing|empty|version|moved` shows other cases, `?suspicious` labels that may be
// wrong, `?prompts` answers to the prompts of a run.
import type { AnswerView, CommandError, ComparisonView, ExportView, InputView, PromptAnswersView, ReportView, ResultSample, ResultsView } from "../../types";
import type { ResultsHost } from "../results";
import { picture } from "./standInPhoto";
import { inspection, rows } from "./standInViews";

const query = new URLSearchParams(location.search);
const state = query.get("results") ?? "";
const names = inspection.classes.map(({ name }) => name);
const held = inspection.classes.map(({ count }) => Math.round(count / 5));
const wrong: [string, string, number][] = [
  ["llama", "kangaroo", 2], ["kangaroo", "llama", 1], ["ibis", "llama", 1], ["scorpion", "trilobite", 1], ["trilobite", "scorpion", 1],
  ["dalmatian", "Leopards", 1], ["bonsai", "chandelier", 1], ["bonsai", "sunflower", 1], ["chandelier", "menorah", 2],
  ["menorah", "chandelier", 1], ["butterfly", "sunflower", 1], ["starfish", "scorpion", 1], ["hawksbill", "trilobite", 1], ["watch", "chandelier", 1],
];
const place = (name: string) => names.indexOf(name);
const wrongOf = (name: string) => wrong.filter(([is]) => is === name).reduce((sum, [, , count]) => sum + count, 0);
const classes = names.map((name, i) => {
  const [samples, correct] = [held[i]!, held[i]! - wrongOf(name)];
  const recall = correct / samples;
  return { name, samples, correct, precision: Math.min(1, recall + 0.03), recall, f1: recall + 0.01 };
});
const confusion = [
  ...classes.map(({ correct }, i): [number, number, number] => [i, i, correct]),
  ...wrong.map(([is, said, count]): [number, number, number] => [place(is), place(said), count]),
];
const mistakes: ResultSample[] = wrong.map(([is, said], id) => ({
  id, file: `${is}/image_00${10 + id}.jpg`, title: is, detail: `${said} ${98 - 3 * id} %`, text: null,
}));
const none: ReportView = {
  title: "", value: "", unit: "", note: "", classes: [], confusion: [], calibration: [], calibration_note: "", mistakes: [], mistake_count: 0,
  suspicious: [], suspicious_count: 0,
  curve: [], curve_title: "", best_epoch: 0, targets: [], measures: [],
};
const curve = Array.from({ length: 30 }, (_, i): [number, number] => [i + 1, i === 26 ? 0.934 : 0.92 - 0.8 * Math.exp(-(i + 1) / 3.4) + 0.008 * Math.sin(i * 2.3)]);
const good: ReportView = {
  ...none, title: "Held-out accuracy", value: "93.4", unit: "%",
  note: "227 of 243 images. With this many samples, the true accuracy is likely between 89.6 and 95.9 %.",
  classes, confusion, mistakes, mistake_count: 16, curve, curve_title: "Accuracy by epoch", best_epoch: 27,
  calibration: [0, 0, 0, 4, 6, 9, 12, 18, 44, 150].map((count, i): [number, number, number] => [count, 0.05 + i / 10, Math.min(1, 0.02 + i / 11)]),
  calibration_note: "The model is overconfident by 4.2 percentage points; the expected calibration error is 5.1 %.",
};
const texts: ReportView = {
  ...good,
  mistakes: mistakes.slice(0, 4).map((mistake, i) => ({ ...mistake, file: `letters.csv`, text: `Letter ${i + 1}: The parcel came on Tuesday, and what was in it was not what we ordered.` })),
  mistake_count: 4,
};
const bad: ReportView = {
  ...good, value: "7.0", note: "17 of 243 images. With this many samples, the true accuracy is likely between 4.4 and 10.9 %.",
};
const points = (scale: number) => Array.from({ length: 90 }, (_, i): [number, number] => {
  const value = scale * (1 + (i % 30) / 6);
  return [value, value * 0.7 + scale * (1 + 0.8 * Math.sin(i * 1.7))];
});
const regression: ReportView = {
  ...none, title: "Held-out error", value: "80.1", unit: "calories",
  note: "Predictions of calories are off by this much on average. Always predicting the mean would be off by 89.5. 90 images were evaluated.",
  curve: curve.map(([epoch, value]) => [epoch, 1.2 - value]), curve_title: "Held-out loss by epoch", best_epoch: 27,
  mistakes: mistakes.map((mistake) => ({ ...mistake, title: "120.0", detail: "predicted 310.0" })), mistake_count: 90,
  targets: [
    { name: "calories", samples: 90, error: "80.1 (72.3 to 88.0)", baseline: "89.5", better: "9.4 (1.2 to 17.7)", points: points(80) },
    { name: "carb_g", samples: 88, error: "9.12 (8.20 to 10.1)", baseline: "12.0", better: "2.88 (1.90 to 3.91)", points: points(10) },
  ],
};
const mixed: ReportView = { ...good, targets: regression.targets };
const compression: ReportView = {
  ...none, title: "Held-out compression", value: "50.0", unit: "%",
  note: "of the tokens are kept. The model needs 1.80 bits to fill in a dropped byte. 412 windows were evaluated.",
  curve: curve.map(([epoch, value]) => [epoch, value - 3.2]), curve_title: "Reward by epoch", best_epoch: 27,
};
const language: ReportView = {
  ...none, title: "Held-out text", value: "2.13", unit: "bits per byte",
  note: "The model needs this many bits for one byte of unseen text; without a model, one byte takes 8 bits. 412 windows were evaluated.",
  curve: curve.map(([epoch, value]) => [epoch, 5 - 3 * value]), curve_title: "Bits per byte by epoch", best_epoch: 27,
};
/** Fine-tuned on conversations. */
const chat: ReportView = {
  ...language,
  measures: [
    { label: "Loss per token", before: "3.182", after: "1.904" },
    { label: "Perplexity", before: "24.10", after: "6.71" },
    { label: "Bits per byte", before: "3.560", after: "2.130" },
  ],
};
const reports: Record<string, ReportView | null> = { bad, regression, mixed, language, chat, texts, compression, evaluating: null, empty: null, version: null, moved: null };
const problems: Record<string, CommandError> = {
  version: { code: "failed", message: "The checkpoint /Users/ada/Library/Application Support/Ebb/runs/2026-11-20-1322-img_caltech101_20/checkpoints/step-000480 has format 2, but this version of Ebb reads format 1; use the version of Ebb that wrote it" },
  moved: { code: "failed", message: "The data of this run, img_caltech101_20, was moved or deleted. Put it back, or locate its new folder." },
};
const judgements: Record<string, { level: string; text: string }> = {
  bad: { level: "warning", text: "Not learning: no better than guessing. The learning rate 1 is probably too high; 0.001 is usual." },
  compression: { level: "normal", text: "Learning: the model needs 1.80 bits per dropped byte; a model that knows only the frequency of each byte needs 4.45." },
  texts: { level: "normal", text: "Better than the n-gram baseline: 93.4 % right instead of 81.2 %." },
  chat: { level: "normal", text: "Learning: the model needs 2.13 bits per byte; a model that knows only the frequency of each byte needs 4.45." },
  language: { level: "normal", text: "Learning: the model needs 2.13 bits per byte; a model that knows only the frequency of each byte needs 4.45." },
  regression: { level: "normal", text: "Better than always predicting the mean: the average error of calories is 80.1 instead of 89.5." },
};
const reported = state in reports ? reports[state]! : good;
/** With the labels that may be wrong: the first mistakes, as in a real evaluation. */
const shown: ReportView | null = reported && query.has("suspicious") ? { ...reported, suspicious: reported.mistakes.slice(0, 10), suspicious_count: 12 } : reported;
/** Task and model of the other cases. */
const kinds: Record<string, string> = { chat: "Language model, Qwen3 0.6B", language: "Language model, Text-Mini", texts: "Text classification, Text-Mini", compression: "Token compression, Text-Mini", regression: "Image regression, ViT-Micro" };
const ofClasses: [string, string][] = [["Loss", state === "bad" ? "2.98" : "0.241"], ["Largest class alone", "7.4 %"], ["Top-5 accuracy", state === "bad" ? "28.4 %" : "99.2 %"], ["Macro F1", state === "bad" ? "3.1 %" : "92.8 %"]];
/** Language models. */
const writes = state === "language" || state === "chat";
const tasks: Record<string, string> = { language: "language-model", chat: "language-model", texts: "text-classification", compression: "token-compression" };
const onWindows = writes || state === "compression";
/** A language model has bits per byte instead of a loss. */
const factsOf: Record<string, [string, string][]> = { language: [], chat: [], compression: [], texts: [...ofClasses, ["Word counts alone", "81.2 %"], ["Network alone", "92.6 %"], ["Weight of the word counts", "30.0 %"]], regression: [["Loss", "0.418"]] };
const ofTraining: [string, string][] = [["Trained for", "17:38"], ["Average speed", onWindows ? "6,690 tokens/s" : "26.1 samples/s"], ["Largest footprint", "6.5 GB"], ["Estimated footprint", "6.9 GB"], ["Micro-batch", "8 to 16"]];
/** `?prompts`: what the model answered after each evaluation. */
const written = ["7/7/2026 is a date.", "It is the 7th of July.", "The seventh of July 2026", "The seventh of July, two thousand and twenty-six."];
const promptAnswers: PromptAnswersView[] = written.map((answer, i) => ({
  step: 480 * (i + 1), is_best: i === 2,
  answers: [
    { prompt: "Write 7/7/2026 as a date in words.", answer, is_cut: i === 2 },
    { prompt: "How many feet are 12 metres?\nRound to one digit.", answer: i < 2 ? "12 feet." : "39.4 feet.", is_cut: false },
  ],
}));
const view: ResultsView = {
  run: { ...rows[2]!, unix_ms: Date.now() - 4e5, what: kinds[state] ?? rows[2]!.what },
  task: tasks[state] ?? "image-classification", sample: onWindows ? "window" : state === "texts" ? "text" : "image", busy: state === "empty",
  report: shown, evaluating: state === "evaluating" ? [96, 243] : null, problem: problems[state] ?? null,
  facts: [["Checkpoint", "epoch 27 of 30"], ...(factsOf[state] ?? ofClasses), ...ofTraining],
  chats: state === "chat", has_base: state === "chat",
  answers: query.has("prompts") ? promptAnswers : [],
  judgement: judgements[state] ?? { level: "normal", text: "Better than guessing: 93.4 % right instead of 7.4 %." },
};

const answer = (id: number, name: string): AnswerView => {
  const unread = name.includes("bad");
  return {
    id, name, targets: state === "regression" || state === "mixed" ? [["calories", 312.4], ["carb_g", 8.25]] : [],
    texts: state === "compression" ? [["Kept, 21 of 42 tokens", "Th··ar··r lay·st···an·t·e bo··s t··ned"], ["Gaps filled, 17 of 21 correct", "The harbor lay still and the boats turned"]] : state === "language" ? [["Continuation", "The harbour lay still and the boats turned slowly on their ropes, while the bell of the church began to ring."]] : [],
    classes: unread || onWindows || state === "regression" ? [] : [["hawksbill", 0.91], ["trilobite", 0.05], ["starfish", 0.021], ["scorpion", 0.011], ["ibis", 0.004]],
    problem: unread ? "It cannot be decoded (the file ends too early). Copy it here again, or remove it." : null,
  };
};
const wave = (steps: number, from: number, to: number, seed: number, every: number) =>
  Array.from({ length: Math.floor(steps / every) }, (_, i): [number, number] => [(i + 1) * every, to + (from - to) * Math.exp((-5 * (i + 1) * every) / steps) + (Math.abs(from) / 60) * Math.sin(i * seed)]);
/** The other run trains fewer samples per step. */
const comparison: ComparisonView = {
  value: "78.1 %",
  note: "Of the 243 images in both evaluations, this run has 227 right, and the other run has 190 right. This run is better; chance alone hardly explains the difference (p < 0.001).",
  axis: "samples",
  curves: [
    { title: "Training loss, smoothed", fraction: false, own: wave(29_160, 3, 0.35, 2.7, 64), other: wave(26_000, 3, 0.72, 1.9, 32) },
    { title: "Held-out loss", fraction: false, own: wave(29_160, 2.9, 0.24, 2.1, 972), other: wave(26_000, 2.9, 0.87, 1.3, 972) },
    { title: "Held-out accuracy", fraction: true, own: wave(29_160, 0.1, 0.93, 2.3, 972), other: wave(26_000, 0.1, 0.78, 1.7, 972) },
  ],
  settings: [
    { key: "model", own: "vit_micro", other: "convnet" },
    { key: "image_size", own: "224", other: "96" },
    { key: "effective_batch", own: "64", other: "32" },
    { key: "learning_rate", own: "0.00005", other: "0.001" },
    { key: "memory_cap_bytes", own: "The memory that other apps leave", other: "8.0 GB" },
  ],
  samples: "The runs share 1,190 samples; 25 are only in this run and 0 are only in the other run.",
};

/** For language models and others. */
const exported: ExportView[] = [
  { kind: "hugging_face", label: "Hugging Face folder", opens: "Python programs open it with the transformers library, and the Hugging Face hub takes it as it is." },
  { kind: "gguf_f16", label: "GGUF, 16 bits", opens: "llama.cpp, LM Studio and Ollama run this file. It stores the weights as 16-bit floats, which is nearly exact. The folder contains a Modelfile for Ollama." },
  { kind: "gguf_q8", label: "GGUF, 8 bits (Q8_0)", opens: "llama.cpp, LM Studio and Ollama run this file. It is half as large as with 16 bits, and hardly less accurate." },
  { kind: "gguf_q4", label: "GGUF, 4 bits (Q4_K_M)", opens: "llama.cpp, LM Studio and Ollama run this file. It is a third as large as with 16 bits, and somewhat less accurate." },
  { kind: "adapters", label: "Adapters for PEFT", opens: "Python programs load this small folder with the PEFT library, together with the weights that the run started from." },
  { kind: "onnx", label: "ONNX", opens: "onnxruntime opens this file in Python, C++, C#, Java, JavaScript and Swift, without PyTorch." },
  { kind: "core_ml", label: "Core ML", opens: "Xcode opens this package, and apps for Mac, iPhone and iPad run it through Core ML and Vision." },
  { kind: "report_pdf", label: "Report as PDF", opens: "You can open this PDF in any browser, or in Preview on a Mac. You can print it and search its text." },
  { kind: "report_png", label: "Report as PNG", opens: "Every image viewer and word processor opens this picture, which shows the loss curves and the memory use." },
  { kind: "report_svg", label: "Report as SVG", opens: "Browsers and drawing programs open this page and print it sharply at any size." },
  { kind: "curves_csv", label: "Curves as CSV", opens: "Numbers, Excel and pandas open this table of loss, learning rate and evaluations." },
  { kind: "tensorboard", label: "Curves for TensorBoard", opens: "TensorBoard opens the folder that this event file is in." },
  { kind: "run", label: "Export run", opens: "Ebb opens this file on another computer and can resume the run there: drop the file on the window, or choose “Import a run…” from the commands." },
];

const inputs: InputView[] = [];
const add = (name: string, folder = false) => {
  inputs.push({ id: inputs.length, name, folder, table: name.endsWith(".csv"), questions: name.endsWith(".jsonl") });
  return inputs.at(-1)!;
};

export const resultsHost: ResultsHost = {
  results: async () => view,
  evaluate: async () => {},
  leave: async () => {},
  samples: async (_run, cls, predicted) =>
    Array.from({ length: 4 }, (_, i) => ({ id: 7 * i + cls, file: `${names[cls]}/image_${i}.jpg`, title: names[cls]!, detail: `${names[predicted]} ${91 - 8 * i} %`, text: null })),
  thumbnail: async (_run, sample) => {
    if (state === "missing") throw { code: "data_missing", message: "The folder img_caltech101_20 was moved or deleted. Put the folder back, or choose Locate folder to see the images." };
    return picture(sample);
  },
  compare: async () => comparison,
  reveal: async () => {},
  locateData: async () => false,
  exportChoices: async () => exported.filter(({ kind }) => (writes ? !["onnx", "core_ml"].includes(kind) : !kind.startsWith("gguf") && kind !== "adapters")),
  exportRun: async () => {
    throw { code: "failed", message: "img_caltech101_20-onnx: Ebb may not write there. Choose another place. Nothing was written." };
  },
  chooseFiles: async () => (query.has("several") ? state === "language" ? [add("morning.txt"), add("evening.txt")] : [add("holiday_0412.jpg"), add("bad.jpg"), add("holiday_0414.jpg")] : [add(query.has("unreadable") ? "bad.jpg" : "holiday_0412.jpg")]),
  addPicture: async () => add("Picture"),
  addText: async (text) => add(text),
  files: async (_run, ids) => ({ request: 1, inputs: ids.slice(0, 2000), left_out: Math.max(0, ids.length - 2000) }),
  // With `?slow`, the model never gets beyond the first 64.
  answers: async (_run, ids, request) => (query.has("slow") && ids[0]! >= 64 ? new Promise<never>(() => {}) : { request, answers: ids.map((id) => answer(id, inputs[id]!.name)) }),
  inputPicture: async (input) => picture(input + 3),
  saliency: async () => Uint8Array.from({ length: 64 * 64 }, (_, i) => 255 * Math.exp(-((i % 64 - 32) ** 2 + (Math.floor(i / 64) - 34) ** 2) / 200)).buffer,
  saveAnswers: async () => "predictions.csv",
  evaluateInput: async () => (state === "regression" ? { ...regression, title: "Folder error", value: "91.7", note: "Predictions of calories are off by this much on average. Always predicting the mean would be off by 89.5. 50 images were evaluated." } : { ...good, title: "Folder accuracy", value: "88.0", note: `44 of 50 ${state === "texts" ? "texts" : "images"}. With this many samples, the true accuracy is likely between 76.2 and 94.4 %.` }),
  openInput: async () => ({ kind: "inspection", id: "demo", weights: null }),
  onDropped: (listener) => {
    const name = query.get("dropped");
    const number = Number(query.get("dropped-files"));
    if (number) setTimeout(() => listener(Array.from({ length: number }, (_, i) => add(`image_${i}.jpg`))));
    if (name) setTimeout(() => listener([add(name, name.endsWith("/"))]));
    return () => {};
  },
};
