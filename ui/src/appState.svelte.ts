// State that all views share: the welcome data, the machine, a folder dragged over the window, and
// the last error.
import { host } from "./host/selectHost";
import { toCommandError, type Drag, type SettingChange } from "./host/host";
import { translate, t } from "./strings/t";
import { go, inspectionHash, onLeave, resultsHash, route, runHash, showHash } from "./route.svelte";
import type { EpochTime } from "./plan/trainingTime";
import type { MachineView, NoticeView, RunRow, Show, Welcome, WeightsView } from "./types";

class Session {
  welcome = $state.raw<Welcome | null>(null);
  machine = $state.raw<MachineView | null>(null);
  drag = $state.raw<Drag>(null);
  /** The last error; shown until it is dismissed or the next action. */
  error = $state.raw<string | null>(null);
  /** What Ebb did otherwise than the user may expect; shown like an error, but it is none. */
  notice = $state.raw<string | null>(null);
  /** Pretrained weights that were chosen or dropped. */
  weights = $state.raw<WeightsView[]>([]);
  /** Pretrained weights that were just dropped on a plan. */
  dropped = $state.raw<WeightsView | null>(null);
  /** Runs by inspection, and inspections by run, since the page was loaded. */
  runOf = new Map<string, string>();
  inspectionOf = new Map<string, string>();
  /** What the next plan of a run changes in the settings that it takes over. */
  changesOf = new Map<string, SettingChange[]>();
  /** Measured seconds per epoch by all that they depend on; `null` if they cannot be known yet.
   * Kept here, because a plan cannot be measured while it trains. */
  epochSeconds = $state.raw<Record<string, number | null>>({});
  /** How they depend on the micro-batch, by the same. */
  epochTimes = $state.raw<Record<string, EpochTime>>({});

  get mac() {
    return this.welcome?.platform === "macos";
  }
}

export const session = new Session();
// An error belongs to the view where it arose, and so does a notice.
onLeave(() => {
  session.error = null;
  session.notice = null;
});

/** Runs an action and shows its error. Returns whether it succeeded. */
export const attempt = async (action: () => Promise<void>): Promise<boolean> => {
  session.error = null;
  session.notice = null;
  try {
    await action();
    return true;
  } catch (thrown) {
    session.error = toCommandError(thrown).message;
    return false;
  }
};

export const chooseFolder = () =>
  attempt(async () => {
    const show = await host.chooseFolder();
    if (show) openShow(show);
  });

export const addWeights = (weights: WeightsView) => {
  if (!session.weights.some(({ id }) => id === weights.id)) session.weights = [...session.weights, weights];
};

/** Ends when the view that was opened last is shown. */
let opened: Promise<void> = Promise.resolve();

/** Shows a notice on the view that is being opened. */
export const showNotice = ({ text, is_error }: NoticeView) =>
  opened.then(() => {
    session.notice = is_error ? null : translate(text);
    if (is_error) session.error = translate(text);
  });

/** Opens a view. Pretrained weights that are dropped on a plan become its starting point. */
export const openShow = (show: Show) => {
  if (show.kind === "inspection" && show.weights) {
    addWeights(show.weights);
    if (route().view === "plan") {
      session.dropped = show.weights;
      return;
    }
  }
  if (show.kind === "run") opened = openRun(show.id);
  else go(showHash(show));
};

/** Whether a run has results: it has finished, or it was stopped and has a checkpoint. */
export const hasResults = ({ status, can_resume }: Pick<RunRow, "status" | "can_resume">) => status === "finished" || (status === "stopped" && can_resume);

/** Opens a run: its results if it has any. */
export const openRun = async (id: string) => {
  const row = (await host.runs().catch(() => [])).find((one) => one.id === id);
  go(row && hasResults(row) ? resultsHash(id) : runHash(id));
};

export const openSample = () => attempt(async () => go(inspectionHash(await host.openSample())));

/** The training that this run would wait for. A run that has just stopped may still be shown as the
 * one that trains. */
export const otherTraining = (run: string) => {
  const active = session.machine?.active;
  return active && active.run !== run ? active : null;
};

/** Resumes a run, or adds it to the queue while another one trains. With `epochs`, the run ends
 * after this many in all. */
export const resumeOrEnqueue = async (run: string, epochs?: number) => {
  const active = otherTraining(run);
  if (!active) {
    await host.resume(run, epochs);
    go(runHash(run));
    return;
  }
  await host.enqueueResume(run, epochs);
  session.notice = t("This run is in the queue. It trains after {name}.", { name: active.name });
};
export const resume = (run: string) => attempt(() => resumeOrEnqueue(run));

/** Returns to the welcome page and shows why: an id is unknown. */
export const leaveUnknown = (thrown: unknown) => {
  go("#/");
  session.error = toCommandError(thrown).message;
};
