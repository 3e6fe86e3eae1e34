# One image, one binary, every role: `docker build -t paceline:0.1.0 .`
#
# What the program is made of is in the image, as CycloneDX, and in the program itself.
# For a release, have the builder attest the whole image as well:
# `docker buildx build --sbom=true --provenance=mode=max --push …`.
#
# Both bases are pinned by the digest of their index, which is of every architecture. The
# digests come from public Dockerfiles that name the same tag, most and the newest of
# which agree (October 2026), and not from a registry: check them before your first build,
# and refresh them as often as you want their fixes, by what
# `docker buildx imagetools inspect gcr.io/distroless/cc-debian12:nonroot` says, and the
# same of the other.
ARG RUST=rust:1.95-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082
ARG RUNTIME=gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f

FROM ${RUST} AS chef
WORKDIR /paceline
RUN cargo install --locked --version 0.1.78 cargo-chef \
    && cargo install --locked --version 0.7.7 cargo-auditable \
    && cargo install --locked --version 0.5.9 cargo-cyclonedx

FROM chef AS plan
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY proof proof
COPY loadtest loadtest
RUN cargo chef prepare --recipe-path recipe.json

# The dependencies are a layer of their own: it is built again when Cargo.lock changes,
# and not with every change of ours.
FROM chef AS build
COPY .cargo .cargo
COPY --from=plan /paceline/recipe.json recipe.json
RUN cargo chef cook --profile dist --locked --package server --recipe-path recipe.json
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY proof proof
COPY loadtest loadtest
COPY migrations migrations
COPY examples/worker_grants.sql examples/worker_grants.sql
# The bill of materials is of Cargo.lock: every crate of the program and of its build.
RUN cargo auditable build --profile dist --locked --package server --bin paceline \
    && cargo cyclonedx --manifest-path crates/server/Cargo.toml --format json \
    --spec-version 1.5 --override-filename paceline.cdx

# glibc, libgcc and the roots of TLS; no shell, no package manager, not root.
FROM ${RUNTIME}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Paceline" \
      org.opencontainers.image.description="Delivers webhooks to every destination at exactly the rate it allows" \
      org.opencontainers.image.licenses="Apache-2.0" \
      dev.paceline.sbom="/usr/share/doc/paceline/sbom.cdx.json" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /paceline/target/dist/paceline /usr/local/bin/paceline
COPY --from=build /paceline/crates/server/paceline.cdx.json /usr/share/doc/paceline/sbom.cdx.json
COPY LICENSE /usr/share/doc/paceline/LICENSE
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
# Without a shell there is nobody to ask /livez from inside: the orchestrator does.
HEALTHCHECK NONE
ENTRYPOINT ["/usr/local/bin/paceline"]
CMD ["--help"]
