/* The frame around every page: rail, header, bottom bar. Entries appear if the token may use them. */
import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { now } from "../lib/clock";
import { age, day } from "../lib/format";
import { pages } from "../lib/pages";
import { route } from "../lib/route";
import { switchTheme, theme } from "../lib/theme";
import { attention, worstLevel } from "../state/attention";
import { readyInstances } from "../state/models";
import { isLive } from "../state/select";
import { t } from "../text/text";
import { useApp } from "./app-context";
import { LostBanner } from "./banner";
import { LanguageButton } from "./language";
import { Icon, MarkIcon } from "./parts";

const current = (page: string): "page" | undefined => {
  const at = route.value.page;
  const of = at === "device" ? "devices" : at === "node" ? "overview" : at === "model" ? "models" : at;
  return of === page ? "page" : undefined;
};

function Rail() {
  const { state, help, finding } = useApp();
  const { server, devices, allocations, instances, alerts } = state.value;
  const unseen = Object.values(alerts).filter((one) => one.acknowledged_at === null).length;
  const running = readyInstances(instances).length;
  const found = attention(state.value);
  const worst = worstLevel(found);
  return (
    <nav class="rail" aria-label={t`Pages`}>
      <a class="brand" href="#/overview">
        <svg aria-hidden="true">
          <use href="#mark" />
        </svg>
        <span>
          exogpu<small class="clip">{server?.name}</small>
        </span>
      </a>
      <div class="nav">
        {pages.map(({ page, name }) => (
          <a href={`#/${page}`} aria-current={current(page)} key={page} title={name}>
            <Icon name={page} />
            {name}
            {page === "devices" && <span class="count">{Object.keys(devices).length}</span>}
            {page === "models" && running > 0 && <span class="count">{t`${running} running`}</span>}
            {page === "allocations" && Object.keys(allocations).length > 0 && (
              <span class="count">{Object.keys(allocations).length}</span>
            )}
            {page === "alerts" && unseen > 0 && <span class="count">{unseen}</span>}
            {page === "overview" && worst && (
              <span class={`count ${worst === "error" ? "crit" : "warm"}`}>
                <MarkIcon mark={worst === "error" ? "offline" : "throttled"} />
                {found.length}
                <span class="sr">{" "}{t`need attention`}</span>
              </span>
            )}
          </a>
        ))}
      </div>
      <div class="rail-foot">
        <Who />
        <div class="row">
          <button class="text-btn" type="button" aria-keyshortcuts="Control+K" onClick={() => (finding.value = true)}>
            <kbd>Ctrl K</kbd> <span class="word">{t`find`}</span>
          </button>
          <LanguageButton />
        </div>
        <div class="row">
          <span class="label">{server ? `exogpu ${server.version}` : ""}</span>
          <button class="text-btn" type="button" onClick={() => (help.value = true)}>
            <kbd>?</kbd> <span class="word">{t`keys`}</span>
          </button>
        </div>
      </div>
    </nav>
  );
}

function Who() {
  const { state, server } = useApp();
  const { login } = state.value;
  if (!login) return null;
  const until = login.expires_at ? t`, until ${day(Date.parse(login.expires_at))}` : "";
  return (
    <div class="who">
      <span class="label clip" title={t`Scopes: ${login.scopes.join(", ")}${until}`}>
        {login.name}
      </span>
      <button class="text-btn" type="button" onClick={() => server.logout()}>
        {t`Log out`}
      </button>
    </div>
  );
}

export function Live() {
  const { state } = useApp();
  const { connection, heardAt } = state.value;
  if (connection.phase === "live" && heardAt !== null)
    return (
      <span class="live" role="status" aria-label={t`Connection: live`}>
        <svg viewBox="0 0 28 12" fill="none" stroke="currentColor" stroke-width="1.5" aria-hidden="true">
          <path d="M0 8h7l2-5 3 7 2.5-5L16 8h12" />
        </svg>
        <span class="sr">{t`connected`}</span>
        <span aria-hidden="true">
          <span class="word">{t`live, heartbeat`}{" "}</span>
          <span class="ago">{t`${age(now.value - heardAt)} ago`}</span>
        </span>
      </span>
    );
  return (
    <span class="live off" role="status" aria-label={t`Connection: not connected`}>
      <svg viewBox="0 0 28 12" fill="none" stroke="currentColor" stroke-width="1.5" aria-hidden="true">
        <path d="M0 8h28" stroke-dasharray="2 3" />
      </svg>
      <span class="sr">{t`not connected`}</span>
      <span aria-hidden="true">{connection.phase === "lost" ? t`not connected` : t`connecting`}</span>
    </span>
  );
}

/** What narrows what a page lists: its text, and what the field is called. */
export interface Filter {
  readonly text: Signal<string>;
  readonly label: string;
}

/** `/` goes to it. */
export function FilterField({ text: filter, label }: Filter) {
  return (
    <div class="search" role="search">
      <input
        type="search"
        data-filter
        placeholder={t`Filter`}
        aria-label={label}
        value={filter.value}
        aria-keyshortcuts="/"
        onInput={(event) => (filter.value = event.currentTarget.value)}
      />
      {filter.value === "" ? (
        <kbd aria-hidden="true">/</kbd>
      ) : (
        <button type="button" aria-label={t`Clear the filter`} onClick={() => (filter.value = "")}>
          <svg aria-hidden="true">
            <use href="#i-close" />
          </svg>
        </button>
      )}
    </div>
  );
}

/** A page: its title (and where it lies) above its content. */
export function Page({
  title,
  parent,
  filter,
  children,
}: {
  title: string;
  parent?: { name: string; href: string };
  filter?: Filter | undefined;
  children: ComponentChildren;
}) {
  const { state } = useApp();
  return (
    <>
      <header class="top">
        {parent ? (
          <div class="crumb">
            <a href={parent.href}>{parent.name}</a>
            <i aria-hidden="true">/</i>
            <h1 class="clip" id="title">{title}</h1>
          </div>
        ) : (
          <h1 class="clip" id="title">
            {title}
          </h1>
        )}
        <span class="spacer" />
        <Live />
        {filter && <FilterField {...filter} />}
        <button
          class="btn icon-only"
          type="button"
          onClick={switchTheme}
          aria-label={theme.value === "dark" ? t`Switch to light` : t`Switch to dark`}
        >
          <Icon name="theme" />
        </button>
      </header>
      <LostBanner />
      <div class={`page ${isLive(state.value) ? "" : "stale"}`}>{children}</div>
    </>
  );
}

export function Shell({ children }: { children: ComponentChildren }) {
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        {t`Skip to the page`}
      </a>
      <Rail />
      <main id="main" aria-labelledby="title" tabIndex={-1}>
        {children}
        <footer class="page-foot">
          <FootWho />
        </footer>
      </main>
      <TabBar />
    </div>
  );
}

/** The frame for somebody who may only use models: no pages to go to, and nothing of the machine. */
export function GuestShell({ children }: { children: ComponentChildren }) {
  const { state, server } = useApp();
  return (
    <div class="shell guest">
      <main id="main" aria-labelledby="title" tabIndex={-1}>
        {children}
        <footer class="page-foot">
          <span>{t`token ${state.value.login?.name ?? ""}, for models only`}</span>
          <LanguageButton />
          <button class="text-btn" type="button" onClick={() => server.logout()}>
            {t`Log out`}
          </button>
        </footer>
      </main>
    </div>
  );
}

/** The pages in a phone's bar; the others are behind its last button. */
const inBar: readonly string[] = ["overview", "devices", "models", "playground"];

function TabBar() {
  const { finding } = useApp();
  const [open, setOpen] = useState(false);
  const at = route.value;
  const menu = useRef<HTMLElement>(null);
  useEffect(() => setOpen(false), [at]);
  useEffect(() => {
    if (!open) return;
    const away = (event: Event): void => {
      if (!(event.target instanceof Node && menu.current?.contains(event.target))) setOpen(false);
    };
    const escape = (event: KeyboardEvent): void => {
      if (event.key === "Escape") setOpen(false);
    };
    addEventListener("pointerdown", away);
    addEventListener("keydown", escape);
    return () => {
      removeEventListener("pointerdown", away);
      removeEventListener("keydown", escape);
    };
  }, [open]);
  const link = ({ page, name }: (typeof pages)[number]) => (
    <a href={`#/${page}`} aria-current={current(page)} key={page}>
      <Icon name={page} />
      {name}
    </a>
  );
  const more = pages.filter(({ page }) => !inBar.includes(page));
  const here = more.some(({ page }) => current(page));
  return (
    <nav class="tabbar" aria-label={t`Pages`} ref={menu}>
      {pages.filter(({ page }) => inBar.includes(page)).map(link)}
      <button type="button" aria-expanded={open} aria-current={here ? "page" : undefined} onClick={() => setOpen(!open)}>
        <Icon name="more" />
        {t`More`}
      </button>
      {open && (
        <div class="tabbar-more">
          {more.map(link)}
          <button
            type="button"
            onClick={() => {
              setOpen(false);
              finding.value = true;
            }}
          >
            <Icon name="find" />
            {t`Find`}
          </button>
        </div>
      )}
    </nav>
  );
}

/** On a phone there is no rail: who is logged in stands below the page. */
function FootWho() {
  const { state, server } = useApp();
  const { login, server: info } = state.value;
  return (
    <>
      <span>{info ? `${info.name}, exogpu ${info.version}` : ""}</span>
      {login && <span>{t`token ${login.name}`}</span>}
      <LanguageButton />
      {login && (
        <button class="text-btn" type="button" onClick={() => server.logout()}>
          {t`Log out`}
        </button>
      )}
    </>
  );
}
