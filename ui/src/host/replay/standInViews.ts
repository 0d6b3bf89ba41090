// Made-up views that a recorded run does not contain: the rows of the welcome page, and the
// inspection of a folder.
import type { EstimateView, InspectionView, MachineView, PlanView, RecentView, RepeatView, RunRow, RunStatus, WeightsView, Welcome } from "../../types";

const GB = 2 ** 30;

export const welcome: Welcome = {
  version: "0.1.0", platform: "macos", language: "en", language_choice: null,
  sample: { images: 320, classes: 8, bytes: 2.6 * 2 ** 20 }, show: null, notice: null,
};

export const machine: MachineView = {
  version: 1, level: "normal", pressure: 0.1, total_bytes: 24 * GB, used_bytes: 11.3 * GB, system_bytes: 3.1 * GB, own_bytes: 0.05 * GB,
  others_bytes: 8.2 * GB, swap_bytes: 0, name: "MacBook Pro, M4 Pro", device: "Metal on M4 Pro, 16 operations checked on this Mac",
  device_check: null, active: null, queued: 0,
};

/** Other apps leave 0.4 GB below the budget line. */
export const crowded: MachineView = { ...machine, level: "warning", pressure: 0.8, used_bytes: 21.2 * GB, others_bytes: 18.05 * GB };

/** The device before its check. */
export const uncheckedGpu = "Metal on M4 Pro; Ebb checks each operation before its first use";
/** The device after a check that failed. */
export const wrongGpu = "CPU, 10 threads: metal cannot be used on this machine, because the check of conv2d 3x3 at micro-batch 2 failed";

const curve = (points: number) => Array.from({ length: points }, (_, i) => 0.4 + 2.6 * Math.exp(-i / 8) + 0.06 * Math.sin(i * 2.7));

const row = (id: string, name: string, what: string, status: RunStatus, line: string, rest: Partial<RunRow>): RunRow => ({
  id, name, what, status, line, here: false, spark: curve(status === "finished" ? 40 : 22), result: null, seconds_left: null,
  can_resume: false, epochs: 30, epochs_done: status === "finished" ? 30 : 12, unix_ms: Date.now() - 9e6, started_unix_ms: Date.now() - 12e6, note: "", tags: [], ...rest,
});

const image = "Image classification";

export const rows: RunRow[] = [
  row("demo", "img_caltech101_20", `${image}, ViT-Micro`, "training", "Training, epoch 17 of 30", { seconds_left: 544, here: true }),
  row("r2", "reviews", `${image}, ConvNet`, "training", "Training in the terminal, epoch 2 of 4", { seconds_left: 4320 }),
  row("r3", "img_caltech101_20", `${image}, ViT-Micro`, "finished", "Finished after 480 steps", { note: "twice the image size", tags: ["shelf", "final"], result: ["93.4 %", "accuracy"] }),
  row("r4", "grocery shelves", `${image}, ConvNet`, "stopped", "Stopped by you at step 1,180", { can_resume: true, tags: ["shelf"] }),
  row("r5", "cifar10_small", `${image}, ConvNet`, "finished", "Finished after 960 steps", { unix_ms: Date.UTC(2026, 10, 12, 14),  result: ["78.1 %", "accuracy"] }),
  row("r6", "birds in the garden", `${image}, ViT-Micro`, "ended_early", "Ended early at step 412: Ebb quit unexpectedly", { can_resume: true }),
];

export const recentFolders: RecentView[] = [
  { id: "recent-1", name: "img_caltech101_20", place: "/Users/ada/Pictures", missing: false },
  { id: "recent-2", name: "grocery shelves", place: "/Users/ada/Pictures/phone", missing: false },
  { id: "recent-3", name: "birds in the garden", place: "/Volumes/Camera/2026", missing: true },
  { id: "recent-4", name: "reviews.csv", place: "/Users/ada/Documents/customers/a folder with a very long name", missing: false },
];

const counts: [string, number][] = [["airplanes", 90], ["Motorbikes", 75], ["watch", 70]];
const classesOf60 = ["bonsai", "butterfly", "chandelier", "dalmatian", "grand_piano", "hawksbill", "kangaroo", "ketch", "laptop", "Leopards",
  "menorah", "scorpion", "starfish", "sunflower", "trilobite"];
const classes = [...counts, ...classesOf60.map((name): [string, number] => [name, 60]), ["ibis", 40] as const, ["llama", 40] as const]
  .map(([name, count]) => ({ name, count, small: count < 45 }));

export const inspection: InspectionView = {
  id: "demo", version: 1, name: "img_caltech101_20", path: "~/Pictures/img_caltech101_20", files_seen: 1218, reading: false,
  refusal: null, task: "image classification", sample: "image", classes, samples: 1215, bytes: 21 * 2 ** 20, typical_size: [300, 225],
  skipped: [
    { file: "ibis/image_0031.jpg", reason: "The image cannot be decoded (the file ends too early). Copy the file here again, or remove it." },
    { file: "watch/banner.png", reason: "The image has 3,600 x 50 pixels; aspect ratios beyond 1:50 are not supported. Crop the image." },
    { file: "laptop/notes.heic", reason: "The file is not a JPEG, PNG or WebP image. Copy the image here again, or save it in one of these formats." },
  ],
  notes: ['The class "ibis" is small: 40 images. The largest, "airplanes", has 90.'],
  split: "20 % of each class, 243 images, chosen by seed 7",
  plans: [{
    settings: {
      task: "image-classification", from: null, trains: "all", model: "vit_micro", resolution: 224, effective_batch: 64, epochs: 30, learning_rate: 5e-5, augment: "standard",
      checkpoint_every: "10min", max_system_fraction: 0.9, courtesy: "auto", seed: 7, other_settings: {},
    },
    task: "Image classification", asks: "One sub-folder per class.", sample: "image", models: [["convnet", "ConvNet"], ["vit_micro", "ViT-Micro"]], model_sizes: [["convnet", 64], ["vit_micro", 224]],
    can_begin: true, trains: [["all", "Everything"]], resolutions: [64, 96, 128, 160, 224],
    train_samples: 972, held_out_samples: 243, machine, budget_line_bytes: 21.6 * GB, leave_least_bytes: 1.5 * GB,
  }],
};

export const weights: WeightsView = { id: "weights-1", name: "vit-tiny-patch16-224" };

/** The plan for fine-tuning the weights. */
export const planWith = (trains: string): PlanView => {
  const [plan] = inspection.plans;
  return {
    ...plan!,
    settings: { ...plan!.settings, from: weights.id, trains, model: "vit", learning_rate: trains === "all" ? 1e-4 : 3e-4 },
    models: [["vit", "ViT, 5.7 M parameters"]], model_sizes: [],
    trains: [["all", "Everything"], ["last:4", "The last 4 blocks"], ["adapter:8", "Adapters of rank 8 (LoRA)"], ["head", "Only a new head"]],
  };
};

export const estimate: EstimateView = {
  parameters: 5_480_000, state_bytes: 1.7 * GB, activations_bytes: 4.8 * GB, peak_bytes: 6.5 * GB, interval: [0.9, 1.1], micro_batch: 16, accumulation: 4,
  checkpoint_blocks: 0, learning_rate: 5e-5, cut_texts: 0, peaks: [1, 2, 4, 8, 11, 16, 22, 32, 64].map((m): [number, number] => [m, 1.7 * GB + 0.3 * m * GB]), refusal: null, recovery: [],
};

/** The estimate of a plan that does not fit: one sample needs 4.0 GB, and 0.4 GB are left. */
export const tooLarge: EstimateView = { ...estimate, activations_bytes: 2.3 * GB, peak_bytes: 4 * GB, micro_batch: 0, refusal: { needed_bytes: 4 * GB, available_bytes: 0.4 * GB } };

export const refused: InspectionView = {
  ...inspection, id: "refused", name: "butterflies", classes: [{ name: "butterfly", count: 60, small: false }], samples: 60, skipped: [],
  notes: [], refusal: { code: "not_trainable", message: "This folder has one class, butterfly. Add a second sub-folder to train." }, plans: [],
};

export const repeated: RepeatView = {
  inspection: "demo", weights: null, trains: null,
  settings: { task: "image-classification", model: "vit_micro", resolution: 160, effective_batch: 32, epochs: 60, learning_rate: 1e-4, seed: 7, augment: "none", other_settings: { optimizer: "adamw", ema_decay: "0.999" } },
};

/** The same with a setting of a recovery step. */
export const repeatedWith = (view: RepeatView, [setting, value]: [string, string]): RepeatView => {
  const { settings } = view;
  return { ...view, settings: setting === "resolution" ? { ...settings, resolution: Number(value) } : { ...settings, other_settings: { ...settings.other_settings, [setting]: value } } };
};
