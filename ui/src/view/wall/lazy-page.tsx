/* The wall view is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";

const page = lazy(async () => (await import("./page")).WallPage);

export const loadWall = page.load;

export const LazyWall = () => (
  <page.View waiting={(failed) => <main class="wall">{failed && <p class="wall-title">{t`This page comes when the connection is back.`}</p>}</main>} />
);
