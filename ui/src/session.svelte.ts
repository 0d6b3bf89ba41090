// What every view shares: the first answer, the machine, a folder hanging over the window, and the last refusal.
import { host } from "./host/choose";
import { refusal, type Drag } from "./host/host";
import { go, inspectionHash, route, runHash, showHash } from "./route.svelte";
import type { MachineView, Show, Welcome, WeightsView } from "./types";

class Session {
  welcome = $state.raw<Welcome | null>(null);
  machine = $state.raw<MachineView | null>(null);
  drag = $state.raw<Drag>(null);
  /** What was refused, where, and the next move; shown until dismissed or something else is tried. */
  error = $state.raw<string | null>(null);
  /** Published weights that were chosen or dropped, and those that were just dropped on a plan. */
  weights = $state.raw<WeightsView[]>([]);
  dropped = $state.raw<WeightsView | null>(null);
  /** Which run came from which inspection, as far as this page has seen it. */
  runOf = new Map<string, string>();
  inspectionOf = new Map<string, string>();

  get mac() {
    return this.welcome?.platform === "macos";
  }
}

export const session = new Session();

/** Tries something that Rust may refuse; a refusal is shown. Says whether it went through. */
export const attempt = async (action: () => Promise<void>): Promise<boolean> => {
  session.error = null;
  try {
    await action();
    return true;
  } catch (thrown) {
    session.error = refusal(thrown).message;
    return false;
  }
};

export const chooseFolder = () =>
  attempt(async () => {
    const show = await host.chooseFolder();
    if (show) follow(show);
  });

export const remember = (weights: WeightsView) => {
  if (!session.weights.some(({ id }) => id === weights.id)) session.weights = [...session.weights, weights];
};

/** Shows what was opened; a model that comes to a plan is what that plan begins with. */
export const follow = (show: Show) => {
  if (show.kind === "inspection" && show.weights) {
    remember(show.weights);
    if (route().view === "plan") {
      session.dropped = show.weights;
      return;
    }
  }
  go(showHash(show));
};

export const openSample = () => attempt(async () => go(inspectionHash(await host.openSample())));

export const resume = (run: string) =>
  attempt(async () => {
    await host.resume(run);
    go(runHash(run));
  });

/** The id led nowhere: back to the start, with the reason. */
export const lost = (thrown: unknown) => {
  session.error = refusal(thrown).message;
  go("#/");
};
