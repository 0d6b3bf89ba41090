// Starts the page: first the locale, then error reporting to Rust, then the window.
import "./fixNavigatorLanguage";
import "./tokens.css";
import "./base.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { perform, restoreScale } from "./actions/perform.svelte";
import { host } from "./host/selectHost";
import { toCommandError } from "./host/host";
import { route } from "./route.svelte";
import { openShow, session, showNotice } from "./appState.svelte";
import { behaveNatively } from "./shell/nativeBehavior";
import { setLanguage } from "./strings/t";

const report = (message: string) => void host.reportError(message).catch(() => {});
addEventListener("error", (event) => report(`${event.message} (${event.filename}:${event.lineno})`));
addEventListener("unhandledrejection", (event) => report(`unhandled: ${String(event.reason)}`));

behaveNatively();
restoreScale();
host.onAction((id, run) => perform(id, run ?? undefined));
host.onShow(openShow);
host.onNotice((notice) => void showNotice(notice));
host.onDrag((drag) => (session.drag = drag));

try {
  session.welcome = await host.welcome();
  await setLanguage(session.welcome.language);
  document.documentElement.dataset.platform = session.welcome.platform;
  if (route().view === "welcome" && session.welcome.show) openShow(session.welcome.show);
  if (session.welcome.notice) void showNotice(session.welcome.notice);
} catch (thrown) {
  session.error = toCommandError(thrown).message; // the window opens and shows the error
}

mount(App, { target: document.body });
document.body.dataset.ready = "1";
