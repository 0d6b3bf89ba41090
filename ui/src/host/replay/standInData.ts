// Made-up data for the window in a plain browser. `?data=texts|none` and `?duplicates=reading|none|busy`
// show other cases.
import type { ConversationView, DataChoices, DataClassView, DataSampleView, DataView, DuplicateGroupView, FirstSampleView, FoundDuplicates, TableView } from "../../types";
import type { DataHost } from "../data";
import { picture } from "./standInPhoto";
import { inspection } from "./standInViews";

const state = new URLSearchParams(location.search).get("data") ?? "";
const images = state === "";
const named = (name: string, count: number): DataClassView => {
  const held_out = Math.round(count / 5);
  return { name, train: count - held_out, held_out, test: 0 };
};
const texts = ["Are you coming home for dinner? I can pick you up at the station at seven, if the train is on time.", "You have won a prize. Call now to claim it.", "ok see you there"];
const rows = Array.from({ length: 8 }, (_, i) => [String(i + 1), texts[i % 3]!, i % 3 === 1 ? "spam" : "ham", i % 2 ? "" : "2026-10-04"]);
const table: TableView = { file: "messages.csv", columns: ["id", "message", "label", "date"], roles: ["", "text", "label", ""], rows };
const view: DataView = {
  version: 1, images, choices: { text_column: null, label_column: null, targets: [], leave_out_classes: images ? ["llama"] : [], merge_classes: [], leave_duplicates_out: false, held_out_fraction: null, group_by: null },
  classes: images ? inspection.classes.map(({ name, count }) => named(name, count)) : state === "none" ? [] : [named("ham", 410), named("spam", 73)],
  problems: images ? inspection.skipped : [], problem_count: images ? inspection.skipped.length : 0, table: images ? null : table,
};

const sample = (cls: number, place: number): DataSampleView => {
  const file = images ? `${view.classes[cls]!.name}/image_00${10 + place}.jpg` : table.file;
  return { sample: cls * 100 + place, file, place: images ? "" : `row ${place + 1}`, text: images ? null : texts[(place + cls) % 3]!, split: place % 5 === 2 ? "held-out" : "train" };
};
const group = (cls: number, places: number[], exact: boolean): DuplicateGroupView => {
  const samples = places.map((place) => sample(cls, place));
  return { samples, count: samples.length, exact, across: new Set(samples.map(({ split }) => split)).size > 1 };
};
const duplicates = new URLSearchParams(location.search).get("duplicates") ?? "";
const foundDuplicates = (): FoundDuplicates => ({
  groups: duplicates === "none" ? [] : [group(0, [4, 7], true), group(1, [2, 3, 8], false), group(0, [10, 11], true), group(1, [13, 14], true), group(0, [20, 21], false)],
  group_count: duplicates === "none" ? 0 : 5, left_out_count: duplicates === "none" ? 0 : 6, across_count: duplicates === "none" ? 0 : 2,
  unreadable: images && duplicates === "" ? [{ sample: 3, file: "watch/image_0013.jpg", reason: "It cannot be decoded (the file ends too early). Copy it here again, or remove it." }] : [],
  unreadable_count: images && duplicates === "" ? 1 : 0,
});
let choices: DataChoices = view.choices;

const opinions = ["The staff were friendly and the room was quiet. We would come again, but the breakfast could begin earlier on weekdays.", "Average. Nothing to complain about.", "The heating did not work for two nights, and nobody came to look at it although we called the desk three times."];
/** The template of a chat model, a preference without its prompt, and a row that is left out. */
const conversations: ConversationView[] = [
  {
    tokens: 46, learned_tokens: 14, rejected: null, lost_answers: 0, problem: null,
    parts: [
      { text: "<|im_start|>user\nHow many feet are 12 metres?<|im_end|>\n<|im_start|>assistant\n", is_learned: false }, { text: "About 39.4 feet.<|im_end|>\n", is_learned: true },
      { text: "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n", is_learned: false }, { text: "Yes.<|im_end|>\n", is_learned: true },
    ],
  },
  {
    tokens: 31, learned_tokens: 9, rejected: "No.<|im_end|>\n", lost_answers: 1, problem: null,
    parts: [{ text: "<|im_start|>user\nWrite 7/7/2026 in words.<|im_end|>\n<|im_start|>assistant\n", is_learned: false }, { text: "The seventh of July 2026.<|im_end|>\n", is_learned: true }],
  },
  { tokens: 0, learned_tokens: 0, parts: [], rejected: null, lost_answers: 0, problem: "the chat template reports an error: Conversation roles must alternate" },
];

const firstSamples = (id: string): FirstSampleView[] => {
  if (id === "texts") {
    return ["positive", "negative", "neutral"].map((label, i) => ({ label, sample: { ...sample(0, i), sample: i, file: `${label}/000${i + 1}.txt`, place: "", text: opinions[[0, 2, 1][i]!]! } }));
  }
  if (id === "chats") {
    return [0, 1, 2].map((i) => ({ label: "", sample: { ...sample(0, i), sample: i, file: "chats.jsonl", place: `row ${i + 1}`, text: texts[i]! } }));
  }
  const names = id === "table" ? [] : inspection.classes.map(({ name }) => name);
  return Array.from({ length: 8 }, (_, i) => {
    const file = names[i] ? `${names[i]}/image_0010.jpg` : `plates/${1000 + i}.jpg`;
    return { label: names[i] ?? `calories ${310 + 45 * i}`, sample: { sample: i * 100, file, place: "", text: null, split: "train" } };
  });
};

export const dataHost: DataHost = {
  data: async () => ({ ...view, choices }),
  samples: async (_inspection, cls, from, count) => {
    const { train, held_out } = view.classes[cls]!;
    return Array.from({ length: Math.max(0, Math.min(count, train + held_out - from)) }, (_, i) => sample(cls, from + i));
  },
  firstSamples: async (inspection) => firstSamples(inspection),
  conversations: async (id) => (id === "chats" ? conversations : []),
  thumbnail: async (_inspection, index) => picture(index),
  reveal: async () => {},
  choose: async (_inspection, next) => void (choices = next),
  duplicates: async () => {
    if (duplicates === "reading") return { progress: [448, 1215], problem: null, found: null };
    return { progress: null, problem: null, found: foundDuplicates() };
  },
  draw: async () => Array.from({ length: 10 }, (_, i) => ({ problem: "", label: inspection.classes[i]!.name })),
  drawn: async (_inspection, place) => picture(place * 3),
};
