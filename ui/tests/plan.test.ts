// Long names and wrong learning rates on the plan page.
import { expect, test } from "vitest";
import { splitName } from "../src/plan/truncateName";
import { fieldErrors } from "../src/plan/settings";
import type { PlanSettings } from "../src/types";

test.each(["apple", "card_payment_wrong_exchange_rate", "Fruit/Apple/Golden-Delicious", "класс с очень длинным именем 🍎🍎🍎🍎"])("the two parts of %s are the name", (name) => {
  const [begin, end] = splitName(name);
  expect(begin + end).toBe(name);
  expect([...end].length).toBe([...name].length > 18 ? 9 : 0);
});

test("a learning rate that Rust refuses has an error at its field", () => {
  const settings = { effective_batch: 16, epochs: 1, seed: 7 } as PlanSettings;
  const wrong = [Number.NaN, 0, 1e-12, 1.5].map((learning_rate) => fieldErrors({ ...settings, learning_rate }).learning_rate !== undefined);
  expect(wrong).toEqual([true, true, true, true]);
  expect(fieldErrors({ ...settings, learning_rate: 1e-9 })).toEqual({});
});
