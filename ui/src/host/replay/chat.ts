// A made-up language model: it answers in words that appear one after the other. With `?slow`, an
// answer ends only if it is stopped, and questions are never all asked; `?refuse` refuses every message.
import type { ChatAnswerView, QuestionsView } from "../../types";
import type { ChatHost } from "../chat";

const query = new URLSearchParams(location.search);
const [slow, refuse] = [query.has("slow"), query.has("refuse")];

/** The number of times that an answer was asked for, and its text. */
const answers: { asked: number; text: string }[] = [];
const texts = {
  trained: "7 July 2026. It is a Tuesday, and the week has the number 28.",
  base: "The date can be written in many ways. In the United States the month usually comes first, so that one writes 7/7/26, while elsewhere",
};
const done: QuestionsView = {
  asking: "after", progress: [40, 40], is_done: true, problem: null, note: "40 questions with choices, 20 questions with answers, 1 row skipped",
  models: ["before", "after"],
  rows: [["accuracy", [0.325, 0.625]], ["accuracy by likelihood per byte", [0.35, 0.65]], ["exact match", [0.05, 0.95]]],
  skipped: [[17, "This row has no answer."]],
};
let asked = false;

export const chatHost: ChatHost = {
  begin: async (_run, { base }) => answers.push({ asked: 0, text: base ? texts.base : texts.trained }) - 1,
  answer: async (number): Promise<ChatAnswerView> => {
    const one = answers[number]!;
    if (refuse) return { text: "", is_done: true, notes: [], problem: "This message needs 5,120 tokens, but may have at most 3,072: a conversation and its answer together may have at most 4,096 tokens; shorten it." };
    one.asked += 1;
    const words = one.text.split(" ");
    const shown = slow && one.asked < 1000 ? 4 : 4 * one.asked;
    const is_done = shown >= words.length;
    return { text: words.slice(0, shown).join(" "), is_done, notes: is_done && one.text === texts.base ? ["The answer was cut after 512 tokens."] : [], problem: null };
  },
  stop: async (number) => void (answers[number]!.asked = 1000),
  ask: async (_run, input) => {
    if (query.get("dropped")?.endsWith(".txt")) throw { code: "failed", message: "notes.txt cannot be read: no row has a usable question; line 1: this row is not JSON" };
    asked = input >= 0;
  },
  questions: async () => (!asked ? null : slow ? { ...done, asking: "before", progress: [12, 60], is_done: false } : done),
  stopQuestions: async () => void (asked = false),
};
