// A conversation with a model: answers grow, both models get their own history, a stop keeps what
// there is, a refused start gives the message back.
import { expect, test } from "vitest";
import { Conversation, history, type Turn } from "../src/results/conversation.svelte";
import { parseSampling, typedSampling } from "../src/results/sampling";
import type { ChatHost } from "../src/host/chat";
import type { ChatAnswerView, ChatRequest } from "../src/types";

const sampling = { system: "", tokens: 8, temperature: 0.8, top_k: null, top_p: null, min_p: null, repetition_penalty: 1, stop: [], seed: 7 };

/** A host whose answers grow by a word each time; the model and the message are the words. */
const host = (words = 2) => {
  const requests: ChatRequest[] = [];
  const asked: number[] = [];
  const stopped: number[] = [];
  const chat = {
    begin: async (_run, request) => {
      asked.push(0);
      return requests.push(request) - 1;
    },
    answer: async (number): Promise<ChatAnswerView> => {
      asked[number]! += 1;
      const { base, message } = requests[number]!;
      const is_done = asked[number]! >= words || stopped.includes(number);
      return { text: `${base ? "base" : "trained"} ${message}`.repeat(asked[number]!), is_done, notes: [], problem: null };
    },
    stop: async (number) => void stopped.push(number),
    ask: async () => {},
    questions: async () => null,
    stopQuestions: async () => {},
  } satisfies ChatHost;
  return { chat, requests, asked, stopped };
};

test("both models answer, and each continues its own conversation", async () => {
  const { chat, requests } = host(1);
  const conversation = new Conversation("r1", chat, 0);
  await conversation.send("one", sampling, true);
  expect(conversation.turns[0]!.answers.map(({ base, text }) => [base, text])).toEqual([[false, "trained one"], [true, "base one"]]);
  await conversation.send("two", sampling, true);
  expect(requests.map(({ base }) => base)).toEqual([false, true, false, true]);
  expect(requests[2]!.turns).toEqual([["one", "trained one"]]);
  expect(requests[3]!.turns).toEqual([["one", "base one"]]);
  expect(conversation.busy).toBe(false);
});

test("a base that joins later knows the answers of the trained model", () => {
  const said = (base: boolean, text: string, problem: string | null = null) => ({ base, text, is_done: true, notes: [], problem });
  const turns: Turn[] = [
    { message: "one", answers: [said(false, "1")] },
    { message: "refused", answers: [said(false, "", "This message is empty.")] },
    { message: "two", answers: [said(false, "2"), said(true, "zwei")] },
  ];
  expect(history(turns, true)).toEqual([["one", "1"], ["two", "zwei"]]);
  expect(history(turns, false)).toEqual([["one", "1"], ["two", "2"]]);
});

test("a stop keeps what there is of an answer", async () => {
  const { chat, asked, stopped } = host(1000);
  const conversation = new Conversation("r1", chat, 1);
  const sent = conversation.send("one", sampling, false);
  while ((asked[0] ?? 0) < 2) await new Promise((resolve) => setTimeout(resolve));
  conversation.stop();
  await sent;
  expect(stopped).toEqual([0]);
  expect(conversation.turns[0]!.answers[0]!.text).not.toBe("");
  expect(conversation.busy).toBe(false);
});

test("a new conversation shows no answer of the earlier one", async () => {
  const { chat, asked, stopped } = host(1000);
  const conversation = new Conversation("r1", chat, 1);
  const sent = conversation.send("one", sampling, false);
  while ((asked[0] ?? 0) < 1) await new Promise((resolve) => setTimeout(resolve));
  conversation.reset();
  await sent;
  expect(stopped).toEqual([0]);
  expect([conversation.turns, conversation.busy]).toEqual([[], false]);
});

test("a message that no model takes is given back with the reason", async () => {
  const { chat } = host();
  const refused = { code: "invalid_setting", message: "The temperature 11 is not possible. Write a number from 0 to 10." };
  const conversation = new Conversation("r1", { ...chat, begin: () => Promise.reject(refused) }, 0);
  await expect(conversation.send("one", sampling, false)).rejects.toEqual(refused);
  expect([conversation.turns, conversation.busy]).toEqual([[], false]);
});

test("settings are numbers in their ranges, or the first field that is wrong", () => {
  expect(parseSampling(typedSampling)).toEqual({ ...sampling, tokens: 512 });
  expect(parseSampling({ ...typedSampling, top_k: "40", min_p: "0.05", stop: "User:" })).toMatchObject({ top_k: 40, min_p: 0.05, stop: ["User:"] });
  const wrong = (field: string, text: string) => parseSampling({ ...typedSampling, [field]: text });
  for (const text of ["warm", "", "-0.1", "11", "NaN", "Infinity"]) expect(wrong("temperature", text), text).toEqual({ field: "temperature", least: 0, most: 10 });
  for (const text of ["0", "1.5", ""]) expect(wrong("tokens", text), text).toMatchObject({ field: "tokens" });
  expect(wrong("top_k", "-1")).toMatchObject({ field: "top_k" });
  expect(wrong("top_p", "1.1")).toMatchObject({ field: "top_p", most: 1 });
});
