// A sample of what ./dev bench reliability does a thousand times.
import { after, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { Kills } from "./kills.mjs";

const CYCLES = 20;

test(`${CYCLES} kills of server, node and worker under load lose nothing that was acknowledged`, async (context) => {
	const kills = new Kills();
	await kills.start();
	for (let number = 0; number < CYCLES; number++) await kills.cycle(number);
	await kills.finish();
	context.diagnostic(`${CYCLES} kills, ${kills.acknowledged} acknowledged changes, none lost`);
});

after(assertContractKept);
