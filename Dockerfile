# The relay alone: a static binary, the certificate authorities, and no shell.
#
#   docker build -t outbox-cdc .
#
# For several platforms: docker buildx build --platform linux/amd64,linux/arm64 … The compiler runs on the builder's own
# platform either way.
#
# The digest decides which compiler and which authorities get into the image; the tag says which version that is.

FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:9d2f36f06329b2a141b9db99ffa32765cf695ee57b813ca29e245e8670bcbfff AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /out/outbox-cdc ./cmd/outbox-cdc

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/outbox-cdc /outbox-cdc
USER 65532:65532
EXPOSE 9187
# Unhealthy is what only a restart can help. A start may take as long as startup_timeout. A port of your own belongs into the
# environment (OUTBOX_CDC_ADMIN_LISTEN), where this finds it too.
HEALTHCHECK --interval=15s --timeout=5s --start-period=40s --retries=4 CMD ["/outbox-cdc", "healthcheck"]
ENTRYPOINT ["/outbox-cdc"]
CMD ["run"]
