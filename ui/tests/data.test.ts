import { expect, test } from "vitest";
import { isLeftOut, NONE, trainedAs, usesAll, withClassLeftOut, withRole, withTrainedAs } from "../src/data/choices";
import { inTurn } from "../src/data/inTurn";
import { splitText } from "../src/data/splitAndSampleText";

test("a class is left out and used again", () => {
  const out = withClassLeftOut(NONE, "ibis", true);
  expect([isLeftOut(out, "ibis"), isLeftOut(out, "llama"), usesAll(out)]).toEqual([true, false, false]);
  expect(withClassLeftOut(out, "ibis", true)).toEqual(out);
  expect(usesAll(withClassLeftOut(out, "ibis", false))).toBe(true);
});

test("classes are merged under a name, and taken apart again", () => {
  const one = withTrainedAs(NONE, "cat", "pets");
  const two = withTrainedAs(one, "dog", " pets ");
  expect(two.merge_classes).toEqual([{ name: "pets", classes: ["cat", "dog"] }]);
  expect([trainedAs(two, "dog"), trainedAs(two, "cow")]).toEqual(["pets", "cow"]);
  const moved = withTrainedAs(two, "cat", "animals");
  expect(moved.merge_classes).toEqual([{ name: "pets", classes: ["dog"] }, { name: "animals", classes: ["cat"] }]);
  expect(withTrainedAs(withTrainedAs(moved, "cat", ""), "dog", "dog")).toEqual(NONE);
});

test("columns get roles", () => {
  const texts = { file: "a.csv", columns: ["id", "body", "tag"], roles: ["", "text", "label"], rows: [] };
  const chosen = withRole(NONE, texts, "id", "text");
  expect(chosen.text_column).toBe("id");
  expect(withRole(chosen, { ...texts, roles: ["text", "", "label"] }, "id", "")).toEqual(NONE);
  const images = { file: "a.csv", columns: ["file", "mass", "height"], roles: ["", "target", "target"], rows: [] };
  expect(withRole(NONE, images, "mass", "").targets).toEqual(["height"]);
  expect(withRole(NONE, { ...images, roles: ["", "", "target"] }, "mass", "target").targets).toEqual(["height", "mass"]);
});

test("the split of a class is put in words", () => {
  expect(splitText({ name: "", train: 72, held_out: 18, test: 0 })).toBe("72 to train on, 18 held out");
  expect(splitText({ name: "", train: 1, held_out: 0, test: 5 })).toBe("1 to train on, none held out, 5 for testing");
});

test("thumbnails are asked for one after another, also after one that fails", async () => {
  const asked: number[] = [];
  const ends: ((ok: boolean) => void)[] = [];
  const ask = inTurn((sample: number) => {
    asked.push(sample);
    return new Promise<string>((resolve, reject) => ends.push((ok) => (ok ? resolve(`image ${sample}`) : reject(new Error("damaged")))));
  });
  const answers = [1, 2, 3].map(ask).map((answer) => answer.catch(({ message }: Error) => message));
  const turn = () => new Promise((resolve) => setTimeout(resolve));
  await turn();
  expect(asked).toEqual([1]);
  ends[0]!(false);
  await turn();
  expect(asked).toEqual([1, 2]);
  ends[1]!(true);
  await turn();
  ends[2]!(true);
  expect(await Promise.all(answers)).toEqual(["damaged", "image 2", "image 3"]);
});
