import { expect, test } from "vitest";
import { addressOf, allStates } from "../src/host/replay/states";

const pictures = Object.keys(import.meta.glob("../pictures/*.png")).map((path) => path.replace("../pictures/", ""));

test("each state has its own name and two pictures, and no picture is left over", () => {
  const ids = allStates.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  expect(pictures.toSorted()).toEqual(ids.flatMap((id) => [`${id}-light.png`, `${id}-dark.png`]).toSorted());
});

test("the address of a state keeps its parameters and its view", () => {
  const state = { id: "a", title: "", at: "?speed=0#/run/demo", shows: "" };
  expect(addressOf(state)).toBe("/?speed=0&state=a#/run/demo");
  expect(addressOf({ ...state, at: "?" }, "dark")).toBe("/?state=a&theme=dark#/");
});
