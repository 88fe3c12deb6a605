// bindings/android, as far as it goes here: its files agree with each other and with what they name; where there is an NDK, the
// libraries of both architectures; and in ./dev test clients the same sources with another C library than glibc. It says what it could not do.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { patient } from "../published/packages.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url)), project = join(root, "bindings/android");
const read = (...path) => readFileSync(join(...path), "utf8");
const gradle = read(project, "build.gradle.kts");
const kit = process.env.ANDROID_NDK_HOME ?? process.env.ANDROID_NDK_ROOT ?? process.env.ANDROID_NDK ?? "";
const scratch = mkdtempSync(join(tmpdir(), "exogpu-android-"));
after(() => rmSync(scratch, { recursive: true, force: true }));

function run(program, words, more = {}) {
	const { status, stdout, stderr, error } = spawnSync(program, words, { encoding: "utf8", maxBuffer: 1 << 26, ...more });
	assert.equal(status, 0, `${program} ${words.join(" ")}: ${error ?? ""}${stdout}${stderr}`);
	return stdout;
}

// A build of the library alone. pkg-config, which finds other libraries, is none that could.
function build(name, words) {
	const folder = join(scratch, name);
	run("cmake", ["-S", root, "-B", folder, "-DEXOGPU_SERVER=OFF", "-DPKG_CONFIG_EXECUTABLE=/bin/false", ...words]);
	run("cmake", ["--build", folder, "--parallel", "2"]);
	return folder;
}

describe("the library project for Android", () => {
	test("its files agree with each other and with what they name", () => {
		assert.deepEqual([...gradle.matchAll(/abiFilters \+= listOf\((.*)\)/g)].map(([, list]) => list), ['"arm64-v8a", "x86_64"']);
		for (const [, path] of gradle.matchAll(/"((?:\.\.\/)+[^"]+)"/g)) assert.ok(existsSync(resolve(project, path)), path);
		assert.match(gradle, /-DEXOGPU_SERVER=OFF/);
		assert.match(gradle, /-DANDROID_STL=none/);
		const [, excluded] = /exclude\("(.*)\/\*\*"\)/.exec(gradle);
		assert.ok(existsSync(join(root, "bindings/java/src", excluded)), excluded);
		const [, kept] = /-keep class (\S+)/.exec(read(project, "consumer-rules.pro"));
		assert.ok(read(root, "bindings/java/jni/exogpu_jni.c").includes(`"${kept.replaceAll(".", "/")}"`), kept);
		const [, version] = /ndkVersion = "(.*)"/.exec(gradle);
		for (const path of [".github/workflows/android.yml", "docs/clients.md"]) assert.ok(read(root, path).includes(version), `${path} names the NDK ${version}`);
	});

	test("its classes use nothing of Java that Android 13 lacks and they could do without", () => {
		const folder = join(root, "bindings/java/src/dev/exogpu");
		for (const name of readdirSync(folder).filter((one) => one.endsWith(".java"))) // API 34 has Path.of, none has java.net.http
			assert.doesNotMatch(read(folder, name).replace(/\/\/.*/g, ""), /\bPath\.of\b|java\.net\.http|dev\.exogpu\.client/, name);
	});

	for (const [abi, machine] of [["arm64-v8a", "AArch64"], ["x86_64", "X86-64"]])
		test(`built by the NDK for ${abi}`, { skip: !kit && "skipped: no NDK: set ANDROID_NDK_HOME; not run here is not seen to work" }, () => {
			const folder = build(abi, [`-DCMAKE_TOOLCHAIN_FILE=${kit}/build/cmake/android.toolchain.cmake`, `-DANDROID_ABI=${abi}`,
				"-DANDROID_PLATFORM=android-33", "-DANDROID_STL=none", "-DCMAKE_BUILD_TYPE=Release"]);
			for (const name of ["libexogpu.so", "libexogpu_jni.so"]) {
				const told = run("readelf", ["-W", "-h", "-l", "-d", "--dyn-syms", join(folder, name)]);
				assert.match(told, new RegExp(machine), name);
				const aligned = [...told.matchAll(/^ +LOAD .* (0x[0-9a-f]+)$/gm)].map(([, align]) => Number(align));
				assert.ok(aligned.length > 1 && aligned.every((align) => align === 16384), `${name}: ${aligned}`);
				const needed = [...told.matchAll(/\(NEEDED\).*\[(.*)\]/g)].map(([, library]) => library);
				assert.deepEqual(needed.filter((one) => !["libc.so", "libm.so", "libdl.so", "libexogpu.so"].includes(one)), [], name);
				assert.match(told, name === "libexogpu.so" ? / exogpu_device_open/ : / JNI_OnLoad/, name);
			}
		});

	test("the same sources without glibc compute", { skip: !patient && "skipped: a minute of a processor: ./dev test clients" }, (context) => {
		const missing = spawnSync("musl-gcc", ["--version"]).error ? "musl-gcc: install musl-tools" : !existsSync("/usr/include/vulkan") && "headers of Vulkan";
		if (missing) return context.skip(`skipped: no ${missing}`);
		const headers = join(scratch, "headers"), program = join(scratch, "example");
		mkdirSync(headers);
		for (const name of ["vulkan", "vk_video"]) symlinkSync(`/usr/include/${name}`, join(headers, name));
		const folder = build("musl", ["-DEXOGPU_JAVA=OFF", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_COMPILER=musl-gcc", `-DCMAKE_C_FLAGS=-isystem ${headers}`]);
		run("musl-gcc", ["-static", "-O1", "-D_GNU_SOURCE", `-I${root}`, `-I${join(root, "engine/include")}`, join(root, "tests/engine/conformance/example.c"),
			join(folder, "CMakeFiles/embedded.dir/embedded.c.o"), join(folder, "libengine.a"), join(folder, "libcommon.a"), "-lm", "-Wl,--gc-sections", "-o", program]);
		assert.equal(run(program, ["cpu"]), "cpu: 3 6 9 12\n");
	});
});
