// What every view shares: the first answer, the machine, a folder hanging over the window, and the last refusal.
import { host } from "./host/choose";
import { refusal, type Drag } from "./host/host";
import { go, inspectionHash, runHash } from "./route.svelte";
import type { MachineView, Welcome } from "./types";

class Session {
  welcome = $state.raw<Welcome | null>(null);
  machine = $state.raw<MachineView | null>(null);
  drag = $state.raw<Drag>(null);
  /** What was refused, where, and the next move; shown until dismissed or something else is tried. */
  error = $state.raw<string | null>(null);
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
    const id = await host.chooseFolder();
    if (id !== null) go(inspectionHash(id));
  });

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
