// Certificates that no server of ours made: enough of X.509 to make authorities and what they sign, EC P-256 with
// SHA-256. A certificate is {pem, key (PEM), subject, keyObject}.
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";

const tagged = (tag, ...parts) => {
	const body = Buffer.concat(parts);
	const size = body.length < 128 ? [body.length] : body.length < 256 ? [0x81, body.length] : [0x82, body.length >> 8, body.length & 255];
	return Buffer.concat([Buffer.from([tag, ...size]), body]);
};
const sequence = (...parts) => tagged(0x30, ...parts);
const oid = (...bytes) => tagged(0x06, Buffer.from(bytes));
const text = (tag, value) => tagged(tag, Buffer.from(value, "latin1"));
const time = (at) => text(0x18, at.toISOString().replace(/\.\d+|[-:T]/g, ""));
const ecdsaSha256 = sequence(oid(0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2));
const nameOf = (common) => sequence(tagged(0x31, sequence(oid(0x55, 4, 3), text(0x0c, common))));
const extension = (last, value, critical = false) =>
	sequence(oid(0x55, 0x1d, last), ...(critical ? [tagged(0x01, Buffer.from([0xff]))] : []), tagged(0x04, value));
const usage = { server: 1, client: 2 };
const pemOf = (kind, der) => `-----BEGIN ${kind}-----\n${der.toString("base64").replace(/.{64}/g, "$&\n").trimEnd()}\n-----END ${kind}-----\n`;

function alternativeName(name) {
	if (name.includes("://") || name.startsWith("exogpu:")) return text(0x86, name);
	if (/^\d+\.\d+\.\d+\.\d+$/.test(name)) return tagged(0x87, Buffer.from(name.split(".").map(Number)));
	return text(0x82, name);
}

// `issuer`: another of these, with the key that signs; without one it signs itself. `uses`: server, client.
export function makeCertificate({ name, issuer, names = [], uses = ["server"], authority = false,
	from = new Date(Date.now() - 3600e3), to = new Date(Date.now() + 30 * 86400e3) }) {
	const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
	const subject = nameOf(name), spki = publicKey.export({ type: "spki", format: "der" });
	const extensions = [
		extension(0x13, authority ? sequence(tagged(0x01, Buffer.from([0xff]))) : sequence(), true),
		extension(0x0f, tagged(0x03, authority ? Buffer.from([1, 0x06]) : Buffer.from([7, 0x80])), true),
		extension(0x0e, tagged(0x04, createHash("sha1").update(spki).digest())),
		...(authority ? [] : [extension(0x25, sequence(...uses.map((one) => oid(0x2b, 6, 1, 5, 5, 7, 3, usage[one]))))]),
		...(names.length ? [extension(0x11, sequence(...names.map(alternativeName)))] : []),
	];
	const serial = randomBytes(16);
	serial[0] = (serial[0] & 0x3f) | 0x40;
	const told = sequence(tagged(0xa0, tagged(0x02, Buffer.from([2]))), tagged(0x02, serial), ecdsaSha256, issuer?.subject ?? subject,
		sequence(time(from), time(to)), subject, spki, tagged(0xa3, sequence(...extensions)));
	const signature = sign("sha256", told, issuer?.keyObject ?? privateKey);
	const pem = pemOf("CERTIFICATE", sequence(told, ecdsaSha256, tagged(0x03, Buffer.from([0]), signature)));
	return { pem, key: privateKey.export({ type: "pkcs8", format: "pem" }), subject, keyObject: privateKey };
}

// A request for one (PKCS #10): {pem, key (PEM), spki}.
export function makeRequest() {
	const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
	const spki = publicKey.export({ type: "spki", format: "der" });
	const told = sequence(tagged(0x02, Buffer.from([0])), sequence(), spki, tagged(0xa0));
	const pem = pemOf("CERTIFICATE REQUEST", sequence(told, ecdsaSha256, tagged(0x03, Buffer.from([0]), sign("sha256", told, privateKey))));
	return { pem, key: privateKey.export({ type: "pkcs8", format: "pem" }), spki };
}
