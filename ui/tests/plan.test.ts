// What the plan page writes: long names in two halves that are the name together.
import { expect, test } from "vitest";
import { halves } from "../src/plan/halves";
import { complaints } from "../src/plan/settings";
import type { PlanSettings } from "../src/types";

test.each(["apple", "card_payment_wrong_exchange_rate", "Fruit/Apple/Golden-Delicious", "класс с очень длинным именем 🍎🍎🍎🍎"])("the halves of %s are the name", (name) => {
  const [begin, end] = halves(name);
  expect(begin + end).toBe(name);
  expect([...end].length).toBe([...name].length > 18 ? 9 : 0);
});

test("a learning rate that Rust would refuse is objected to at its field", () => {
  const settings = { effective_batch: 16, epochs: 1, seed: 7 } as PlanSettings;
  const wrong = [Number.NaN, 0, 1e-12, 1.5].map((learning_rate) => complaints({ ...settings, learning_rate }).learning_rate !== undefined);
  expect(wrong).toEqual([true, true, true, true]);
  expect(complaints({ ...settings, learning_rate: 1e-9 })).toEqual({});
});
