/* Chooses the screen: login, waiting for the first snapshot, or a page. */
import { useSignalEffect } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { focusPage } from "../lib/focus";
import { pages } from "../lib/pages";
import { type Route, route } from "../lib/route";
import { isGuest } from "../state/guest";
import { deviceName } from "../state/select";
import { t } from "../text/text";
import { LazyAccess } from "./access/lazy-page";
import { LazyAllocations } from "./allocations/lazy-page";
import { useApp } from "./app-context";
import { LazyAlerts } from "./alerts/lazy-page";
import { LazyUsage } from "./usage/lazy-page";
import { LazyAudit } from "./audit/lazy-page";
import { LazyFind } from "./lazy-find";
import { LazyLogs } from "./logs/lazy-page";
import { LazyModel, LazyModels } from "./models/lazy-page";
import { LazyTopology } from "./topology/lazy-page";
import { LazyGuest, LazyPlayground } from "./playground/lazy-page";
import { LazyDevice } from "./device/lazy-page";
import { DevicesPage } from "./devices/page";
import { Help } from "./help";
import { Login } from "./login";
import { LazyNode } from "./node/lazy-page";
import { Overview } from "./overview/overview";
import { Toasts } from "./toasts";
import { GuestShell, Page, Shell } from "./shell";
import { LazyWall } from "./wall/lazy-page";

function Current({ at }: { at: Exclude<Route, { page: "wall" }> }) {
  switch (at.page) {
    case "overview":
      return <Overview />;
    case "devices":
      return <DevicesPage />;
    case "device":
      return <LazyDevice id={at.id} key={at.id} />;
    case "node":
      return <LazyNode id={at.id} key={at.id} />;
    case "topology":
      return <LazyTopology />;
    case "models":
      return <LazyModels />;
    case "model":
      return <LazyModel id={at.id} key={at.id} />;
    case "playground":
      return <LazyPlayground id={at.id} />;
    case "allocations":
      return <LazyAllocations />;
    case "access":
      return <LazyAccess />;
    case "audit":
      return <LazyAudit />;
    case "usage":
      return <LazyUsage />;
    case "alerts":
      return <LazyAlerts />;
    case "logs":
      return <LazyLogs />;
    case "unknown":
      return (
        <Page title={t`No such page`}>
          <section class="panel empty">
            <h2>{t`Nothing is at this address`}</h2>
            <p>{t`The link may be old, or a letter is missing.`}</p>
            <a class="btn" href="#/overview">
              {t`Go to Overview`}
            </a>
          </section>
        </Page>
      );
  }
}

/** Before the first snapshot; on loopback too short to be seen. */
function Waiting() {
  return (
    <Page title="exogpu">
      <div class="waiting">
        <svg aria-hidden="true">
          <use href="#mark" />
        </svg>
        <p>{t`Waiting for the server`}</p>
      </div>
    </Page>
  );
}

/** Toasts stay wherever somebody goes, also to the login: one that was refused says so there. */
export const AppView = () => (
  <>
    <Screen />
    <Toasts />
  </>
);

/** What is another page. In the Playground the address also tells the model, which is chosen there. */
const placeOf = (at: Route): string => (at.page === "playground" || !("id" in at) ? at.page : `${at.page} ${at.id}`);

function Screen() {
  const { state } = useApp();
  useSignalEffect(() => {
    const { server, connection, devices, nodes, models, login } = state.value;
    const at = route.value;
    const name =
      connection.phase === "login"
        ? t`Log in`
        : isGuest(login)
          ? t`Playground`
          : at.page === "device"
          ? (devices[at.id] ? deviceName(state.value, at.id) : t`Device`)
          : at.page === "node"
            ? (nodes[at.id]?.record.name ?? t`Node`)
            : at.page === "model"
              ? (models[at.id]?.name ?? t`Model`)
              : at.page === "wall"
                ? t`Wall`
                : at.page === "unknown"
                  ? t`No such page`
                  : pages.find((one) => one.page === at.page)?.name;
    const title = [name, isGuest(login) ? null : server?.name, "exogpu"].filter(Boolean).join(" · ");
    if (document.title !== title) document.title = title;
  });
  const shownAt = useRef<string | null>(null);
  const place = placeOf(route.value);
  useLayoutEffect(() => {
    if (shownAt.current !== null && shownAt.current !== place) focusPage();
    shownAt.current = place;
  }, [place]);
  const { connection, loaded, login, chat } = state.value;
  if (connection.phase === "starting") return null;
  if (connection.phase === "login") return <Login reason={connection.reason} />;
  if (isGuest(login)) return <GuestShell>{chat ? <LazyGuest /> : <Waiting />}</GuestShell>;
  const at = route.value;
  const shown = at.page === "wall" ? <LazyWall /> : <Shell>{loaded ? <Current at={at} /> : <Waiting />}</Shell>;
  return (
    <>
      {shown}
      <Help />
      <LazyFind />
    </>
  );
}
