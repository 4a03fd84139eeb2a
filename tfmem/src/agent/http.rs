//! `/metrics` and `/healthz`. On the thread of orders and timers, never on that which reads the kernel's buffer.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
    time::timeout,
};

use super::metrics::openmetrics;

/// Whoever connects and says nothing is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection lives so long at most: scrapers connect again.
const LONGEST: Duration = Duration::from_secs(120);
/// Connections at the same time; further ones wait in the socket.
const CONNECTIONS: usize = 16;

/// What is served.
pub trait Pages: Send + Sync + 'static {
    /// The page of metrics.
    fn metrics(&self) -> Option<String>;
    fn healthy(&self) -> bool;
}

/// The listening socket. Dropping it ends it; connections end by themselves.
#[derive(Debug)]
pub struct Server {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// # Errors
    /// When the address cannot be listened at.
    pub async fn start(address: SocketAddr, pages: Arc<dyn Pages>) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listen at {address}"))?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let room = Arc::new(Semaphore::new(CONNECTIONS));
            while let Ok(place) = room.clone().acquire_owned().await {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let pages = pages.clone();
                        tokio::spawn(async move {
                            let _ = timeout(LONGEST, connection(stream, pages)).await;
                            drop(place);
                        });
                    }
                    // Out of descriptors: others may be closed meanwhile.
                    Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection(stream: TcpStream, pages: Arc<dyn Pages>) {
    let service = service_fn(move |request| {
        let response = answer(&request, pages.as_ref());
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // One who went away is no error.
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        log::debug!("a connection to /metrics: {error}");
    }
}

fn answer(request: &Request<Incoming>, pages: &dyn Pages) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "GET alone\n".to_owned(), "text/plain");
    }
    match request.uri().path() {
        "/metrics" => match pages.metrics() {
            Some(page) => text(StatusCode::OK, page, openmetrics::CONTENT_TYPE),
            None => text(StatusCode::INTERNAL_SERVER_ERROR, "no metrics\n".to_owned(), "text/plain"),
        },
        "/healthz" if pages.healthy() => text(StatusCode::OK, "ok\n".to_owned(), "text/plain"),
        "/healthz" => text(StatusCode::SERVICE_UNAVAILABLE, "the loop stands still\n".to_owned(), "text/plain"),
        _ => text(StatusCode::NOT_FOUND, "/metrics or /healthz\n".to_owned(), "text/plain"),
    }
}

fn text(status: StatusCode, body: String, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}
