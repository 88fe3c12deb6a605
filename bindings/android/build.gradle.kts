// dev.exogpu for Android: the classes of bindings/java as they are, over libexogpu, which the CMake project above builds alone.
plugins {
    id("com.android.library") version "8.13.0"
}

android {
    namespace = "dev.exogpu"
    compileSdk = 36
    ndkVersion = "28.2.13676358"

    defaultConfig {
        minSdk = 33 // java.lang.ref.Cleaner
        consumerProguardFiles("consumer-rules.pro")
        ndk {
            abiFilters += listOf("arm64-v8a", "x86_64")
        }
        externalNativeBuild {
            cmake {
                // No server, no C++. Pages of 16 KiB are asked for by cmake/library.cmake and cmake/java.cmake, for every system.
                arguments += listOf("-DEXOGPU_SERVER=OFF", "-DANDROID_STL=none")
                targets += listOf("libexogpu", "exogpu_jni")
            }
        }
    }

    externalNativeBuild {
        cmake {
            path = file("../../CMakeLists.txt")
            version = "3.22.1"
        }
    }

    sourceSets["main"].java.setSrcDirs(listOf("../java/src"))

    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }
}

// The client of the wire needs java.net.http, which Android does not have.
tasks.withType<JavaCompile>().configureEach {
    exclude("dev/exogpu/client/**")
}
