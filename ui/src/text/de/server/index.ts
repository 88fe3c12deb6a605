/* German for the sentences that come from the server, by their keys (common/wire/said.h). */
import alerts from "./alerts";
import api from "./api";
import cluster from "./cluster";
import instances from "./instances";
import library from "./library";
import placement from "./placement";
import security from "./security";
import tenants from "./tenants";
import wire from "./wire";
import convert from "./convert";
import journal from "./journal";
import model from "./model";
import net from "./net";
import node from "./node";
import worker from "./worker";
import store from "./store";
import prompts from "./prompts";
import backends from "./backends";
import engine from "./engine";

export default { ...alerts, ...api, ...cluster, ...instances, ...library, ...placement, ...security, ...tenants, ...wire, ...convert, ...journal, ...model, ...net, ...node, ...worker, ...store, ...prompts, ...backends, ...engine } as Readonly<Record<string, string>>;
