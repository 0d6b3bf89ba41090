// Long names and wrong learning rates on the plan page.
import { expect, test } from "vitest";
import { splitName } from "../src/plan/splitName";
import { groups, planChange, planText, rows, search } from "../src/plan/allSettings";
import { checkpointName, fieldErrors, parameters, passes, samplesPerStep } from "../src/plan/settings";
import { inspection } from "../src/host/replay/standInViews";
import type { PlanSettings } from "../src/types";

test.each(["apple", "card_payment_wrong_exchange_rate", "Fruit/Apple/Golden-Delicious", "класс с очень длинным именем 🍎🍎🍎🍎"])("the two parts of %s are the name", (name) => {
  const [begin, end] = splitName(name);
  expect(begin + end).toBe(name);
  expect([...end].length).toBe([...name].length > 18 ? 9 : 0);
});

test("a learning rate that Rust refuses has an error at its field", () => {
  const settings = { effective_batch: 16, epochs: 1, seed: 7 } as PlanSettings;
  const wrong = [Number.NaN, 0, 1e-12, 11].map((learning_rate) => fieldErrors({ ...settings, learning_rate }).learning_rate !== undefined);
  expect(wrong).toEqual([true, true, true, true]);
  expect(fieldErrors({ ...settings, learning_rate: 1e-9 })).toEqual({});
});

test("the fields of the plan page have the limits of the table of settings", () => {
  const right = { effective_batch: 16, epochs: 1, seed: 7, learning_rate: 1e-3 } as PlanSettings;
  for (const key of ["effective_batch", "epochs", "seed", "learning_rate"] as const) {
    const { field } = rows.find((row) => row.key === key)!;
    if (field.kind !== "number") throw new Error(`${key} is not a number`);
    const max = field.max ?? Number.MAX_SAFE_INTEGER;
    const beyond = [field.min / 2 - 1, max * 2];
    expect([field.min, max, ...beyond].map((value) => fieldErrors({ ...right, [key]: value })[key] !== undefined), key).toEqual([false, false, true, true]);
  }
});

test("a field that is wrong asks for what the table allows", () => {
  expect(fieldErrors({ effective_batch: 0, epochs: 1.5, seed: -1, learning_rate: 11 } as PlanSettings)).toEqual({
    effective_batch: "Enter a whole number from 1 to 65,536.",
    epochs: "Enter a whole number from 1 to 100,000.",
    learning_rate: "Enter a number from 1e-9 to 10.",
    seed: "Enter a whole number, 0 or larger.",
  });
});

test("the sheet finds settings by their words, and has each once", () => {
  expect(search("weight decay").map(({ key }) => key)).toContain("weight_decay");
  expect(search("lion").map(({ key }) => key)).toEqual(["optimizer"]);
  expect(search("zebra")).toEqual([]);
  const keys = groups(rows).flatMap(([, members]) => members.map(({ key }) => key));
  expect(keys).toEqual([...new Set(keys)]);
  expect(keys.length).toBe(rows.length);
});

test("a setting that the plan page shows has one value in both places", () => {
  const images = inspection.plans[0]!.settings;
  const tuned = { ...images, from: "weights-1", trains: "last:2" };
  for (const [settings, key, text] of [
    [images, "image_size", "128"], [{ ...images, augment: null }, "tokens", "128"], [images, "learning_rate", "0.002"], [images, "epochs", "12"], [images, "augment", "none"],
    [images, "courtesy", "off"], [images, "seed", "8"], [images, "max_system_fraction", "0.8"], [tuned, "train_only", "head"], [tuned, "adapter_rank", "8"],
  ] as const) {
    const after = { ...settings, ...planChange(key, text) };
    expect(planText(key, after), key).toBe(text);
    expect(after).not.toEqual(settings);
  }
  expect([planText("tokens", images), planText("train_only", images), planText("adapter_rank", tuned)]).toEqual(["", "", ""]);
});

test("a number of steps replaces the epochs", () => {
  const settings = { epochs: 3, effective_batch: 10, other_settings: {} } as unknown as PlanSettings;
  expect(passes(settings, 95)).toBe(3);
  expect(passes({ ...settings, other_settings: { steps: "25" } }, 95)).toBe(2.5);
});

test("amounts of one, small models and small datasets read well", () => {
  expect(["auto", "1epochs", "2epochs", "10min", "1steps"].map(checkpointName)).toEqual(["Automatic", "Every epoch", "Every 2 epochs", "Every 10 minutes", "Every step"]);
  expect([4_800, 480_000, 5_480_000].map((all) => parameters(all).join(" ").trim())).toEqual(["4,800", "0.48 M", "5.5 M"]);
  const settings = { effective_batch: 256 } as PlanSettings;
  expect([samplesPerStep(settings, 215), samplesPerStep(settings, 972)]).toEqual([215, 256]);
});
