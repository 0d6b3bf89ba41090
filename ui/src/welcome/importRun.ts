import { attempt, openRun, session } from "../appState.svelte";
import { host } from "../host/selectHost";
import { translate } from "../strings/t";

/** Adds an exported run to the list, and opens it. */
export const importRun = async () => {
  const done = await attempt(async () => {
    const imported = await host.importRun();
    if (!imported) return;
    await openRun(imported.run);
    session.notice = imported.notice && translate(imported.notice);
  });
  // It said that the run was being imported.
  if (!done) session.notice = null;
};
