// Made-up inspections of folders that hold no images.
import type { InspectionView, PlanView } from "../../types";
import { inspection } from "./standInViews";

const [images] = inspection.plans;
const none = { typical_size: null, skipped: [], notes: [] };

const textPlan: PlanView = {
  ...images!, task: "Text classification", asks: "One sub-folder per class.", sample: "text", models: [["text_transformer", "Transformer, 4 blocks"]], model_sizes: [],
  settings: { ...images!.settings, task: "text-classification", model: "text_transformer", resolution: 256, effective_batch: 32, epochs: 10, learning_rate: 3e-4, augment: null },
  resolutions: [128, 256, 512], train_samples: 6400, held_out_samples: 1600,
};

export const texts: InspectionView = {
  ...inspection, ...none, id: "texts", name: "reviews", path: "~/Documents/reviews", files_seen: 8002, task: "text classification", sample: "text",
  classes: [["negative", 2610], ["neutral", 2590], ["positive", 2800]].map(([name, count]) => ({ name: String(name), count: Number(count), small: false })),
  samples: 8000, bytes: 9 * 2 ** 20, skipped: [{ file: "positive/0412.txt", reason: "It is empty." }, { file: "neutral/1733.txt", reason: "It is not UTF-8. Save it as UTF-8." }],
  notes: ["Half of the texts have fewer than 180 tokens."], split: "20 % of each class, 1,600 texts, chosen by seed 7", plans: [textPlan],
};

export const table: InspectionView = {
  ...inspection, ...none, id: "table", name: "meals.csv", path: "~/Documents/meals", files_seen: 2401, task: "image regression", classes: [], samples: 2400,
  bytes: 310 * 2 ** 20, typical_size: [640, 480], notes: ["The column rating has no value in 12 rows. These rows are trained on the other columns."],
  split: "20 %, 480 images, chosen by seed 7",
  plans: [{
    ...images!, task: "Image regression", asks: "A table with a column of file names and columns of numbers.", train_samples: 1920, held_out_samples: 480,
    settings: { ...images!.settings, task: "image-regression", learning_rate: 1e-4 },
  }],
};

const chatPlan: PlanView = {
  ...textPlan, task: "Language model", asks: "Conversations.", sample: "conversation", models: [["gpt_small", "Text-Mini"]], resolutions: [128, 256, 512], train_samples: 64, held_out_samples: 16,
  settings: { ...textPlan.settings, task: "language-model", model: "gpt_small", resolution: 256, effective_batch: 8, epochs: 3, learning_rate: 1e-3 },
};

export const chats: InspectionView = {
  ...inspection, ...none, id: "chats", name: "chats.jsonl", path: "~/Documents/chats.jsonl", files_seen: 1, task: "language modeling", sample: "conversation", classes: [],
  samples: 80, bytes: 40 * 1024, split: "20 %, 16 conversations, chosen by seed 7", plans: [chatPlan],
};
