// The choice of the model that a plan starts from: from the disk, among the models on this machine,
// or by its name at a hub. Each problem is shown beside what was tried.
import type { BaseModelHost } from "../host/baseModel";
import { toCommandError } from "../host/host";
import { size } from "../format";
import { t, translate } from "../strings/t";
import type { BaseModelsView, HubFitView, HubModelView, HubRequest, WeightsView } from "../types";

/** Milliseconds between two looks at a look-up. */
const INTERVAL = 250;

/** Where something was tried. */
export type Place = "disk" | "found" | "hub";

/** Starts the plan from a model. `trains` is the part that fits; `null` if Ebb does not know it. */
export type Start = (weights: WeightsView, trains: string | null) => Promise<void>;

export const isBusy = (view: HubModelView | null) => view?.step === "asking" || view?.step === "downloading";

/** "1.4 GB, 310 MB of it downloaded". */
export const sizeText = ({ bytes, done_bytes }: HubModelView) =>
  done_bytes > 0 ? t("{size}, of which {done} is downloaded", { size: size(bytes), done: size(done_bytes) }) : size(bytes);

/** Whether the training fits into memory, and how. */
export const fitText = ({ trains, trains_label, needed_bytes, available_bytes }: HubFitView): string => {
  const needed = size(needed_bytes);
  if (available_bytes !== null) return `${t("Does not fit: training needs {needed}, but only {left} is left for Ebb.", { needed, left: size(available_bytes) })} ${t("Choose a smaller model, or close other apps.")}`;
  if (trains === "all") return t("Fits: training needs about {needed}.", { needed });
  return t("Fits if you train only a part of the model ({part}): training then needs about {needed}.", { part: translate(trains_label), needed });
};

/** What is missing on the disk, in bytes; 0 if nothing is, or if it is not known. */
export const missingSpace = ({ bytes, done_bytes, free_bytes }: HubModelView) => (free_bytes === null ? 0 : Math.max(0, bytes - done_bytes - free_bytes));

export class BaseModel {
  models = $state.raw<BaseModelsView | null>(null);
  lookedUp = $state.raw<HubModelView | null>(null);
  /** The last problem, and where it arose. */
  problem = $state.raw<{ place: Place; text: string } | null>(null);
  /** The sheet was closed. */
  private left = false;
  private following = false;

  constructor(
    readonly inspection: string,
    private readonly host: BaseModelHost,
    private readonly start: Start,
    private readonly interval = INTERVAL,
  ) {}

  /** The problem of a place, or nothing. */
  problemAt(place: Place): string {
    if (this.problem?.place === place) return this.problem.text;
    return place === "hub" && this.lookedUp?.problem ? translate(this.lookedUp.problem) : "";
  }

  async load(task: string) {
    await this.attempt("found", async () => {
      this.models = await this.host.models(task);
      this.lookedUp = this.models.looked_up;
    });
    await this.follow();
  }

  /** Starts from what `choose` returns; nothing if that is nothing. */
  async use(place: Place, choose: () => Promise<WeightsView | null>, trains: string | null = null) {
    await this.attempt(place, async () => {
      const weights = await choose();
      if (weights) await this.start(weights, trains);
    });
  }

  async lookUp(request: HubRequest) {
    await this.attempt("hub", () => this.host.lookUp(this.inspection, request));
    await this.follow();
  }

  async download() {
    await this.attempt("hub", () => this.host.download());
    await this.follow();
  }

  async stop() {
    await this.attempt("hub", async () => {
      await this.host.stop();
      this.lookedUp = await this.host.lookedUp();
    });
  }

  /** Shows no further answers. A download goes on. */
  leave() {
    this.left = true;
  }

  private async attempt(place: Place, action: () => Promise<void>) {
    this.problem = null;
    try {
      await action();
    } catch (thrown) {
      this.problem = { place, text: toCommandError(thrown).message };
    }
  }

  /** Looks until the look-up or the download has ended. */
  private async follow() {
    if (this.following) return;
    this.following = true;
    try {
      for (;;) {
        const view = await this.host.lookedUp();
        if (this.left) return;
        this.lookedUp = view;
        if (!isBusy(view)) return;
        await new Promise((resolve) => setTimeout(resolve, this.interval));
      }
    } catch (thrown) {
      this.problem = { place: "hub", text: toCommandError(thrown).message };
    } finally {
      this.following = false;
    }
  }
}
