// The page's start: locale first, then errors find their way to Rust, then the window.
import "./locale";
import "./tokens.css";
import "./ground.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { host } from "./host/choose";
import { refusal } from "./host/host";
import { route } from "./route.svelte";
import { follow, session } from "./session.svelte";

const report = (message: string) => void host.reportError(message).catch(() => {});
addEventListener("error", (event) => report(`${event.message} (${event.filename}:${event.lineno})`));
addEventListener("unhandledrejection", (event) => report(`unhandled: ${String(event.reason)}`));

host.onShow(follow);
host.onDrag((drag) => (session.drag = drag));

try {
  session.welcome = await host.welcome();
  document.documentElement.dataset.platform = session.welcome.platform;
  if (route().view === "welcome" && session.welcome.show) follow(session.welcome.show);
} catch (thrown) {
  session.error = refusal(thrown).message; // an empty window would say less
}

mount(App, { target: document.body });
document.body.dataset.ready = "1";
