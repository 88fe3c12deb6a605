package dev.exogpu.client;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.http.HttpClient;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;

/** Where a server is, and how its certificate is checked. */
record Address(URI uri, HttpClient http) {
	private static final int PORT = 52415;

	/** Of "http://127.0.0.1:52415", "https://HOST", "ws://..." or "HOST:PORT"; ca: a PEM file, or null. */
	static Address of(String url, Path ca, Duration dial) {
		URI whole;
		try {
			whole = new URI(url.contains("://") ? url : "http://" + url);
		} catch (URISyntaxException wrong) {
			throw new IllegalArgumentException("no address of a server: " + url, wrong);
		}
		String scheme = String.valueOf(whole.getScheme());
		boolean secure = scheme.equals("https") || scheme.equals("wss");
		if (whole.getHost() == null || !secure && !scheme.equals("http") && !scheme.equals("ws"))
			throw new IllegalArgumentException("no address of a server: " + url + "; such as http://127.0.0.1:" + PORT);
		if (ca != null && !secure)
			throw new IllegalArgumentException("an authority's certificate is for https addresses, and " + url + " is none");
		int port = whole.getPort() < 0 ? PORT : whole.getPort();
		URI uri = URI.create((secure ? "wss" : "ws") + "://" + whole.getHost() + ":" + port + "/ws");
		HttpClient.Builder http =
				HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(dial).executor(Threads.POOL);
		if (secure) {
			SSLParameters parameters = new SSLParameters();
			parameters.setProtocols(new String[] {"TLSv1.3"});
			http.sslParameters(parameters);
		}
		if (ca != null)
			http.sslContext(trusting(ca));
		return new Address(uri, http.build());
	}

	/** Trusts the certificates of the file, and no others. */
	private static SSLContext trusting(Path ca) {
		try (InputStream in = Files.newInputStream(ca)) {
			KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
			store.load(null, null);
			for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(in))
				store.setCertificateEntry("authority-" + store.size(), each);
			if (store.size() == 0)
				throw new IllegalArgumentException("no certificate in " + ca);
			TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
			trust.init(store);
			SSLContext context = SSLContext.getInstance("TLSv1.3");
			context.init(null, trust.getTrustManagers(), null);
			return context;
		} catch (IOException | GeneralSecurityException wrong) {
			throw new IllegalArgumentException("the authority's certificate cannot be read from " + ca + ": " + wrong.getMessage(), wrong);
		}
	}
}
