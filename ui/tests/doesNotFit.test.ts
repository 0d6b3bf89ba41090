// What a plan that does not fit says: the numbers, and the setting to change first.
import { expect, test } from "vitest";
import { remedy } from "../src/plan/doesNotFit";

const GB = 2 ** 30;
const refusal = { needed_bytes: 1.5 * GB, available_bytes: 0.5 * GB };

test("who moved the slider last is asked to move it back", () => {
  const said = remedy({ refusal, last: "max_system_fraction", slider_bytes: 4 * GB, images: true });
  expect(said).toBe("Does not fit: training needs 1.5 GB, but only 0.5 GB is left for Ebb. Move the slider to the right, or close other apps.");
});

test("another setting that was changed last comes before the slider", () => {
  const said = remedy({ refusal, last: "resolution", slider_bytes: 4 * GB, images: true });
  expect(said).toContain("Choose a smaller image size, move the slider to the right, or close other apps.");
  expect(remedy({ refusal, last: "resolution", slider_bytes: 0, images: false })).toContain("Choose a shorter length, or close other apps.");
});

test("a slider that would not help is not named", () => {
  const said = remedy({ refusal: { ...refusal, available_bytes: 0 }, last: null, slider_bytes: GB, images: true });
  expect(said).toContain("nothing is left for Ebb. Close other apps, or choose smaller images or another model.");
});
