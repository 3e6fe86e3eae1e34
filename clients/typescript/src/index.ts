// A client of Paceline's API, with types that are generated from its description.

import createFetchClient, { type Client as FetchClient } from "openapi-fetch";
import type { paths } from "./paceline.js";

export { Webhook } from "standardwebhooks";
export type { components, operations, paths } from "./paceline.js";

/** Paceline's API: `client.GET("/v1/destinations")` and so on, as openapi-fetch has it. */
export type Client = FetchClient<paths>;

export interface Options {
  /** Where it is, such as `https://hooks.example.com`. */
  url: string;
  /** An API key. */
  key: string;
  /** Whom a key of the scope `platform` acts for: by its id, or by the one that you have given it. */
  tenant?: string;
}

export function createClient({ url, key, tenant }: Options): Client {
  return createFetchClient<paths>({
    baseUrl: url,
    headers: {
      Authorization: `Bearer ${key}`,
      ...(tenant === undefined ? {} : { "Paceline-Tenant": tenant }),
    },
  });
}
