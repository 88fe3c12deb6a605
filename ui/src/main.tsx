/* The composition root: makes the store, gives its dispatch to the socket alone, and draws. */
import { render } from "preact";
import { flush, flushWhenHidden } from "./command/toasts";
import { startClock } from "./lib/clock";
import { keepFocus } from "./lib/focus";
import { openRows } from "./lib/open";
import { writeToken } from "./lib/prefs";
import { startRouting } from "./lib/route";
import { renderWhenSeen } from "./lib/seen";
import { followSystem } from "./lib/theme";
import { type Server, connect } from "./net/socket";
import { createStore } from "./state/store";
import { AppView } from "./view/app";
import { AppContext, createApp } from "./view/app-context";
import { loadAccess } from "./view/access/lazy-page";
import { loadAllocations } from "./view/allocations/lazy-page";
import { loadAudit } from "./view/audit/lazy-page";
import { loadAlerts } from "./view/alerts/lazy-page";
import { notifying } from "./view/alerts/notify";
import { loadUsage } from "./view/usage/lazy-page";
import { loadLogs } from "./view/logs/lazy-page";
import { loadTopology } from "./view/topology/lazy-page";
import { loadModels } from "./view/models/lazy-page";
import { loadCatalog } from "./view/models/lazy-catalog";
import { loadPlayground } from "./view/playground/lazy-page";
import { loadNode } from "./view/node/lazy-page";
import { loadCharts } from "./view/device/lazy-charts";
import { loadDevice } from "./view/device/lazy-page";
import { loadWall } from "./view/wall/lazy-page";
import { loadFind } from "./view/lazy-find";
import { startKeys } from "./view/keys";

let server: Server | null = null;
let code: string | null = null;
// a token in the address: kept for this tab before the socket looks for one, or used at once when it came later; a code likewise
startRouting(({ kind, text }) => {
  if (server) kind === "token" ? server.login(text, false) : server.redeem(text);
  else if (kind === "token") writeToken(text, false);
  else code = text;
});
followSystem();
startClock();
renderWhenSeen();

const store = createStore(requestAnimationFrame);
server = connect(notifying(store), `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`, code);
const { logout } = server;
const app = createApp(store, { ...server, logout: () => void flush().then(logout) });
flushWhenHidden();
startKeys(app);
keepFocus();
openRows();
store.publish();
const root = document.getElementById("app")!;
root.replaceChildren();
delete document.documentElement.dataset["token"];
render(
  <AppContext.Provider value={app}>
    <AppView />
  </AppContext.Provider>,
  root,
);
const parts = [loadFind, loadCatalog, loadDevice, loadCharts, loadNode, loadTopology, loadModels, loadPlayground, loadAllocations, loadAccess, loadAudit, loadAlerts, loadUsage, loadLogs, loadWall];
setTimeout(() => void parts.reduce<Promise<unknown>>((before, load) => before.then(load), Promise.resolve()), 1000);
