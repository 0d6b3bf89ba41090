// The choice of a base model: what a look-up shows until it ends, where a problem is shown, and when
// the plan starts from the model.
import { expect, test } from "vitest";
import { BaseModel, fitText, missingSpace, sizeText } from "../src/plan/baseModel.svelte";
import type { BaseModelHost } from "../src/host/baseModel";
import type { HubModelView, HubRequest, WeightsView } from "../src/types";

const GB = 2 ** 30;
const weights: WeightsView = { id: "weights-3", name: "org/name" };
const request: HubRequest = { name: "org/name", hub: "https://hub.example", token: "" };
const fit = { parameters: 1000, trains: "all", trains_label: "Everything", needed_bytes: 2 * GB, available_bytes: null };
const view = (part: Partial<HubModelView>): HubModelView => ({
  name: "org/name", hub: "https://hub.example", step: "asking", licence: null, bytes: 0, done_bytes: 0, free_bytes: null, fit: null, problem: null, needs_token: false, weights: null, ...part,
});
const offered = view({ step: "offered", licence: "mit", bytes: 4 * GB, free_bytes: 9 * GB, fit });

/** A host that answers one view after the other, the last one for ever. */
const host = (views: (HubModelView | null)[], more: Partial<BaseModelHost> = {}) => {
  const called: string[] = [];
  let place = 0;
  const models: BaseModelHost = {
    models: async () => ({ found: [], hub: "https://hub.example", looked_up: views[0] ?? null }),
    chooseGguf: async () => null,
    lookUp: async (_inspection, { name }) => void called.push(`look up ${name}`),
    download: async () => void called.push("download"),
    lookedUp: async () => views[Math.min(place++, views.length - 1)] ?? null,
    stop: async () => void called.push("stop"),
    ...more,
  };
  return { models, called };
};
const refused = () => Promise.reject({ code: "failed", message: "org/name cannot be used." });
const ignore = async () => {};

test("a look-up is followed until the hub has answered", async () => {
  const { models, called } = host([view({}), view({}), offered]);
  const base = new BaseModel("demo", models, ignore, 0);
  await base.lookUp(request);
  expect(called).toEqual(["look up org/name"]);
  expect(base.lookedUp).toEqual(offered);
  expect(base.problemAt("hub")).toBe("");
});

test("a name that is refused is not followed, and the reason is shown at the hub", async () => {
  const { models } = host([null], { lookUp: refused });
  const base = new BaseModel("demo", models, ignore, 0);
  await base.lookUp(request);
  expect([base.problemAt("disk"), base.problemAt("found"), base.problemAt("hub")]).toEqual(["", "", "org/name cannot be used."]);
  expect(base.lookedUp).toBeNull();
});

test("an interrupted download shows why, and can be continued", async () => {
  const broken = { ...offered, done_bytes: GB, problem: "The connection broke." };
  const { models, called } = host([{ ...offered, step: "downloading" }, broken]);
  const base = new BaseModel("demo", models, ignore, 0);
  await base.download();
  expect([base.lookedUp!.step, base.problemAt("hub")]).toEqual(["offered", "The connection broke."]);
  await base.download();
  expect(called).toEqual(["download", "download"]);
});

test("a sheet that opens during a download shows it, and one that is closed follows it no further", async () => {
  const downloading = view({ step: "downloading", bytes: 4 * GB, done_bytes: GB });
  let asked = 0;
  const { models } = host([downloading], { lookedUp: async () => ((asked += 1), downloading) });
  const base = new BaseModel("demo", models, ignore, 0);
  const followed = base.load("language-model");
  while (asked < 3) await new Promise((resolve) => setTimeout(resolve));
  expect(base.lookedUp!.done_bytes).toBe(GB);
  base.leave();
  await followed;
  const ended = asked;
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(asked).toBe(ended);
});

test("the plan starts with the part that fits, and a folder without a model is refused at its place", async () => {
  const started: [string, string | null][] = [];
  const start = async ({ id }: WeightsView, trains: string | null) => void started.push([id, trains]);
  const { models } = host([null]);
  const base = new BaseModel("demo", models, start, 0);
  await base.use("hub", async () => weights, "adapter:8");
  await base.use("disk", async () => null);
  expect(started).toEqual([["weights-3", "adapter:8"]]);
  const other = new BaseModel("demo", models, refused, 0);
  await other.use("disk", async () => weights);
  expect(other.problemAt("disk")).toBe("org/name cannot be used.");
  await other.use("found", async () => null);
  expect(other.problemAt("disk"), "the next try forgets it").toBe("");
});

test("what is known before a download is said in words", () => {
  expect(sizeText(offered)).toBe("4.0 GB");
  expect(sizeText({ ...offered, done_bytes: GB })).toBe("4.0 GB, of which 1.0 GB is downloaded");
  expect(fitText(fit)).toBe("Fits: training needs about 2.0 GB.");
  expect(fitText({ ...fit, trains: "adapter:8", trains_label: "Adapters of rank 8 (LoRA)" })).toBe("Fits if you train only a part of the model (Adapters of rank 8 (LoRA)): training then needs about 2.0 GB.");
  expect(fitText({ ...fit, trains: "adapter:8", available_bytes: GB })).toBe("Does not fit: training needs 2.0 GB, but only 1.0 GB is left for Ebb. Choose a smaller model, or close other apps.");
  expect([missingSpace(offered), missingSpace({ ...offered, free_bytes: GB }), missingSpace({ ...offered, free_bytes: GB, done_bytes: 3 * GB }), missingSpace({ ...offered, free_bytes: null })]).toEqual([0, 3 * GB, 0, 0]);
});
