/* The page in German. */
import type { Texts } from "../language";
import access from "./access";
import catalog from "./catalog";
import common from "./common";
import devices from "./devices";
import lend from "./lend";
import models from "./models";
import overview from "./overview";
import pages from "./pages";
import playground from "./playground";
import server from "./server";
import topology from "./topology";

export default { ...server, ...common, ...overview, ...devices, ...topology, ...models, ...playground, ...access, ...catalog, ...pages, ...lend } as Texts;
