// Made-up results for the window in a plain browser. `?results=bad|regression|language|evaluating|
// missing|empty` shows other cases.
import type { AnswerView, InputView, ReportView, ResultSample, ResultsView } from "../../types";
import type { ResultsHost } from "../results";
import { picture } from "./picture";
import { inspection, rows } from "./views";

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
  curve: [], curve_title: "", best_epoch: 0, targets: [],
};
const curve = Array.from({ length: 30 }, (_, i): [number, number] => [i + 1, i === 26 ? 0.934 : 0.92 - 0.8 * Math.exp(-(i + 1) / 3.4) + 0.008 * Math.sin(i * 2.3)]);
const good: ReportView = {
  ...none, title: "Held-out accuracy", value: "93.4", unit: "%",
  note: "227 of 243 images. With this many, the true value is likely between 89.6 and 95.9 %.",
  classes, confusion, mistakes, mistake_count: 16, curve, curve_title: "Accuracy by epoch", best_epoch: 27,
  calibration: [0, 0, 0, 4, 6, 9, 12, 18, 44, 150].map((count, i): [number, number, number] => [count, 0.05 + i / 10, Math.min(1, 0.02 + i / 11)]),
  calibration_note: "Too sure of itself by 4.2 points; the expected calibration error is 5.1 %.",
};
const bad: ReportView = {
  ...good, value: "7.0", note: "17 of 243 images. With this many, the true value is likely between 4.4 and 10.9 %.",
};
const points = (scale: number) => Array.from({ length: 90 }, (_, i): [number, number] => {
  const value = scale * (1 + (i % 30) / 6);
  return [value, value * 0.7 + scale * (1 + 0.8 * Math.sin(i * 1.7))];
});
const regression: ReportView = {
  ...none, title: "Held-out error", value: "80.1", unit: "calories",
  note: "calories is off by this much on average; always predicting its mean is off by 89.5. 90 images were evaluated.",
  curve: curve.map(([epoch, value]) => [epoch, 1.2 - value]), curve_title: "Held-out loss by epoch", best_epoch: 27,
  mistakes: mistakes.map((mistake) => ({ ...mistake, title: "120.0", detail: "predicted 310.0" })), mistake_count: 90,
  targets: [
    { name: "calories", samples: 90, error: "80.1 (72.3 to 88.0)", baseline: "89.5", better: "9.4 (1.2 to 17.7)", points: points(80) },
    { name: "carb_g", samples: 88, error: "9.12 (8.20 to 10.1)", baseline: "12.0", better: "2.88 (1.90 to 3.91)", points: points(10) },
  ],
};
const language: ReportView = {
  ...none, title: "Held-out text", value: "2.13", unit: "bits per byte",
  note: "Bits that the model needs for one byte of text that it has not seen; 8 without a model. 412 windows were evaluated.",
  curve: curve.map(([epoch, value]) => [epoch, 5 - 3 * value]), curve_title: "Bits per byte by epoch", best_epoch: 27,
};
const reports: Record<string, ReportView | null> = { bad, regression, language, evaluating: null, empty: null };
const judgements: Record<string, { level: string; text: string }> = {
  bad: { level: "warning", text: "Not learning: no better than guessing. The learning rate 1 is probably too high; 0.001 is usual." },
  regression: { level: "normal", text: "Better than predicting the mean: calories is off by 80.1 instead of 89.5." },
};
const view: ResultsView = {
  run: { ...rows[2]!, unix_ms: Date.now() - 4e5, line: "Finished after 480 steps" },
  task: state === "language" ? "language-model" : "image-classification", sample: state === "language" ? "window" : "image", busy: state === "empty",
  report: state in reports ? reports[state]! : good, evaluating: state === "evaluating" ? [96, 243] : null, problem: null,
  facts: [
    ["Checkpoint", "epoch 27 of 30"], ["Loss", "0.241"], ["Largest class alone", "7.4 %"], ["Top-5 accuracy", "99.2 %"], ["Trained for", "17:38"],
    ["Average speed", "26.1/s"], ["Largest footprint", "6.5 GB"], ["Micro-batch", "8 to 16"],
  ],
  judgement: state === "language" ? null : (judgements[state] ?? { level: "normal", text: "Better than guessing: 93.4 % right instead of 7.4 %." }),
};

const answer = (id: number, name: string): AnswerView => {
  const unread = name.includes("bad");
  return {
    id, name, targets: state === "regression" ? [["calories", 312.4], ["carb_g", 8.25]] : [],
    texts: state === "language" ? [["Continuation", "The harbour lay still and the boats turned slowly on their ropes, while the bell of the church began to ring."]] : [],
    classes: unread || state === "language" || state === "regression" ? [] : [["hawksbill", 0.91], ["trilobite", 0.05], ["starfish", 0.021], ["scorpion", 0.011], ["ibis", 0.004]],
    problem: unread ? "It cannot be decoded (the file ends too early). Copy it here again, or remove it." : null,
  };
};
const inputs: InputView[] = [];
const add = (name: string, folder = false) => {
  inputs.push({ id: inputs.length, name, folder });
  return inputs.at(-1)!;
};

export const resultsHost: ResultsHost = {
  results: async () => view,
  evaluate: async () => {},
  leave: async () => {},
  samples: async (_run, cls, predicted) =>
    Array.from({ length: 4 }, (_, i) => ({ id: 7 * i + cls, file: `${names[cls]}/image_${i}.jpg`, title: names[cls]!, detail: `${names[predicted]} ${91 - 8 * i} %`, text: null })),
  thumbnail: async (_run, sample) => {
    if (state === "missing") throw { code: "data_missing", message: "The folder img_caltech101_20 is not where it was. Put it back, or locate it to see the images." };
    return picture(sample);
  },
  compare: async () => ({ value: "78.1 %", note: "Of 243 images in both evaluations, this run has 227 right and the other 190. This run is better, by more than chance explains (p = 0.000)." }),
  locateData: async () => false,
  exportChoices: async () => [
    { kind: "hugging_face", label: "Hugging Face folder", opens: "Python programs open it with the transformers library, and the Hugging Face hub takes it as it is." },
    { kind: "onnx", label: "ONNX", opens: "onnxruntime opens it in Python, C++, C#, Java, JavaScript and Swift, without PyTorch." },
    { kind: "core_ml", label: "Core ML", opens: "Xcode opens this package, and apps for Mac, iPhone and iPad run it through Core ML and Vision." },
    { kind: "report_pdf", label: "Report as PDF", opens: "Preview and every browser open this page, print it, and find its text." },
    { kind: "report_png", label: "Report as PNG", opens: "Every image viewer and word processor opens this page with curves and memory." },
    { kind: "report_svg", label: "Report as SVG", opens: "Browsers and drawing programs open this page and print it sharply at any size." },
    { kind: "curves_csv", label: "Curves as CSV", opens: "Numbers, Excel and pandas open this table of loss, learning rate and evaluations." },
    { kind: "tensorboard", label: "Curves for TensorBoard", opens: "TensorBoard opens the folder that this event file is in." },
  ],
  exportRun: async () => {
    throw { code: "failed", message: "img_caltech101_20-onnx: Ebb may not write there. Choose another place. Nothing was written." };
  },
  chooseFiles: async () => (query.has("several") ? [add("holiday_0412.jpg"), add("bad.jpg"), add("holiday_0414.jpg")] : [add(query.has("unreadable") ? "bad.jpg" : "holiday_0412.jpg")]),
  addPicture: async () => add("Pasted picture"),
  addText: async (text) => add(text),
  answers: async (_run, ids) => ids.map((id) => answer(id, inputs[id]!.name)),
  inputPicture: async (input) => picture(input + 3),
  saliency: async () => Uint8Array.from({ length: 64 * 64 }, (_, i) => 255 * Math.exp(-((i % 64 - 32) ** 2 + (Math.floor(i / 64) - 34) ** 2) / 200)).buffer,
  saveAnswers: async () => "predictions.csv",
  evaluateInput: async () => ({ ...good, title: "Folder accuracy", value: "88.0", note: "44 of 50 images. With this many, the true value is likely between 76.2 and 94.4 %." }),
  openInput: async () => ({ kind: "inspection", id: "demo", weights: null }),
  onDropped: (listener) => {
    const name = query.get("dropped");
    if (name) setTimeout(() => listener([add(name, name.endsWith("/"))]));
    return () => {};
  },
};
