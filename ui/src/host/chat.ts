// What Try it for language models asks of the program. It is loaded when such a model is tried.
import type { ChatAnswerView, ChatRequest, QuestionsView } from "../types";
import { invoke } from "./tauri";

export interface ChatHost {
  /** Begins the answer to a message. Returns its number. */
  begin(run: string, request: ChatRequest): Promise<number>;
  /** What there is of an answer. It is forgotten when its end was read. */
  answer(answer: number): Promise<ChatAnswerView>;
  /** Ends an answer with what there is of it. */
  stop(answer: number): Promise<void>;
  /** Asks the questions of a file before and after the training. */
  ask(run: string, input: number): Promise<void>;
  /** How far the questions are, or their results; `null` if none were asked. */
  questions(run: string): Promise<QuestionsView | null>;
  stopQuestions(run: string): Promise<void>;
}

const app: ChatHost = {
  begin: (run, request) => invoke("chat_begin", { run, request }),
  answer: (answer) => invoke("chat_answer", { answer }),
  stop: (answer) => invoke("chat_stop", { answer }),
  ask: (run, input) => invoke("ask_questions", { run, input }),
  questions: (run) => invoke("questions", { run }),
  stopQuestions: (run) => invoke("stop_questions", { run }),
};

const replays = import.meta.env.MODE !== "production" && !("__TAURI_INTERNALS__" in window);

export const chatHost: ChatHost = replays ? (await import("./replay/chat")).chatHost : app;
