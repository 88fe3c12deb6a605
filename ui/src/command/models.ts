/* Commands for models: add, search, preview, load, stop, remove. */
import type { Methods, ModelFound, Placement } from "../lib/api.gen";
import type { Server } from "../net/socket";
import { t } from "../text/text";
import { type Refusal, tried } from "./tried";

export type PlaceParams = Methods["placement.preview"]["params"];

export interface Found {
  readonly results: readonly ModelFound[];
  readonly unreachable: readonly string[];
}

export const addModel = (server: Server, source: string, accessToken: string | null) =>
  tried(() => server.call("model.add", accessToken ? { source, access_token: accessToken } : { source }));
export type HeldAs = "Q8_0" | "Q4_0" | "file";
export const removeModel = (server: Server, model_id: string) => tried(() => server.call("model.remove", { model_id }));
export const loadModel = (server: Server, params: Methods["instance.create"]["params"]) => tried(() => server.call("instance.create", params));
export const stopInstance = (server: Server, instance_id: string) =>
  tried(() => server.call("instance.delete", { instance_id }));

/** To the place that is offered, or with its weights held otherwise. */
export const moveInstance = (server: Server, instance_id: string, format?: HeldAs) =>
  tried(() => server.call("instance.move", { instance_id, ...(format ? { format } : {}) }));

export async function searchModels(server: Server, text: string): Promise<Found | Refusal> {
  let found: Found | null = null;
  const refusal = await tried(async () => (found = await server.call("model.search", { text })));
  return refusal ?? found!;
}

/** A search that found nothing and did not reach every hub says nothing of what there is. */
export const notSearched = ({ results, unreachable }: Found): Refusal | null =>
  results.length > 0 || unreachable.length === 0
    ? null
    : {
        what: t`it could not be searched: ${unreachable.join("; ")}`,
        hint: t`without a network, copy a .gguf file to the server's machine and add it by its path, or drop it on this page`,
      };

export async function previewPlacement(server: Server, params: PlaceParams): Promise<Placement | Refusal> {
  let placement: Placement | null = null;
  const refusal = await tried(async () => (placement = await server.call("placement.preview", params)));
  return refusal ?? placement!;
}

export type Folder = Methods["model.browse"]["result"];

/** What a folder of the server's machine holds; null: the folders that may be looked into. */
export async function browse(server: Server, dir: string | null): Promise<Folder | Refusal> {
  let folder: Folder | null = null;
  const refusal = await tried(async () => (folder = await server.call("model.browse", dir === null ? {} : { dir })));
  return refusal ?? folder!;
}

export const isRefused = (outcome: object): outcome is Refusal => "what" in outcome && "hint" in outcome;
