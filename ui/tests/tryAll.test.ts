// Many files on Try it: answered a few at a time, stopped, replaced by a later request, and what
// was left out in words.
import { expect, test } from "vitest";
import { LatestRequest, describeLeftOut, tryAll } from "../src/results/tryAll";
import type { AnswersView, AnswerView, TryFilesView } from "../src/types";

const answer = (id: number): AnswerView => ({ id, name: `${id}.jpg`, classes: [], targets: [], texts: [], problem: null });
const files = (request: number, count: number): TryFilesView => ({ request, inputs: Array.from({ length: count }, (_, i) => i), left_out: 0 });
const answerAll = async (inputs: number[], request: number): Promise<AnswersView> => ({ request, answers: inputs.map(answer) });

test("many inputs are asked for a few at a time, with the number of their request", async () => {
  const asked: [number, number][] = [];
  const shown: [number, number][] = [];
  const ask = async (inputs: number[], request: number) => {
    asked.push([inputs.length, request]);
    return answerAll(inputs, request);
  };
  const answers = await tryAll(new LatestRequest().begin(), files(7, 40), 16, ask, (...now) => shown.push(now));
  expect(asked).toEqual([[16, 7], [16, 7], [8, 7]]);
  expect(shown).toEqual([[16, 40], [32, 40], [40, 40]]);
  expect(answers?.map(({ id }) => id)).toEqual(files(7, 40).inputs);
});

test("a stop keeps the answers that are there", async () => {
  const requests = new LatestRequest();
  const many = { ...files(1, 2000), left_out: 8000 };
  const answers = await tryAll(requests.begin(), many, 16, answerAll, (answered) => answered >= 32 && requests.stop());
  expect(answers).toHaveLength(32);
  expect(describeLeftOut(many, answers?.length ?? 0)).toBe(
    "Stopped; 1,968 files were not tried. Ebb tries at most 2,000 files at a time; 8,000 more files were left out.",
  );
});

test("an abandoned request shows nothing, and asks for nothing more", async () => {
  const requests = new LatestRequest();
  const [shown, asked]: [number[], number[]] = [[], []];
  let respond = (_answers: AnswersView) => {};
  const ask = (inputs: number[]) => {
    asked.push(inputs.length);
    return new Promise<AnswersView>((resolve) => (respond = resolve));
  };
  const abandoned = tryAll(requests.begin(), files(1, 40), 16, ask, (answered) => shown.push(answered));
  const next = requests.begin();
  respond({ request: 1, answers: [answer(0)] });
  expect(await abandoned).toBeNull();
  expect([asked, shown]).toEqual([[16], []]);
  const answers = await tryAll(next, files(2, 3), 16, answerAll, () => {});
  expect(answers?.map(({ id }) => id)).toEqual([0, 1, 2]);
});

test("a request that is replaced before its files are known asks for nothing", async () => {
  const requests = new LatestRequest();
  const abandoned = requests.begin();
  requests.begin();
  const ask = () => Promise.reject(new Error("it asks"));
  expect(await tryAll(abandoned, files(1, 3), 16, ask, () => {})).toBeNull();
});

test("answers with the number of another request are left out", async () => {
  const ask = async (inputs: number[], request: number) => answerAll(inputs, inputs[0] === 0 ? request - 1 : request);
  const answers = await tryAll(new LatestRequest().begin(), files(5, 4), 2, ask, () => {});
  expect(answers?.map(({ id }) => id)).toEqual([2, 3]);
});

test("nothing is said if everything was tried", () => {
  expect(describeLeftOut(files(1, 2), 2)).toBe("");
});
